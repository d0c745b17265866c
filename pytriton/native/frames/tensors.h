// Dtypes, counts of elements, and the two forms of BYTES: the frames' (all lengths, then all bytes) and the server's
// (each element's length before its bytes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pytriton {

constexpr uint8_t kBytes = 13;

uint64_t item_size(uint8_t dtype);                 // bytes; 0 for BYTES and what is no dtype
uint8_t dtype_code(std::string_view config_name);  // of "TYPE_FP32"; throws FrameError

// Product of the extents. Throws FrameError if one, or the product, is beyond 63 bits.
uint64_t count(const uint64_t* shape, unsigned rank);

// The lengths of strings in the frames' form. Throws FrameError unless they fit the size exactly.
std::vector<uint32_t> string_lengths(std::string_view encoded, uint64_t elements);

// Splits BYTES of the server's form, which a client may change at any time: lengths are read once. Throws BadRequest
// unless it holds exactly that many elements.
void split_strings(std::string_view interleaved, uint64_t elements, std::string& lengths, std::string& bytes);

}  // namespace pytriton
