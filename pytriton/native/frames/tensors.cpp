#include "tensors.h"

#include <array>
#include <cstring>

#include "failure.h"

namespace pytriton {

namespace {
struct Dtype {
  std::string_view name;
  uint64_t size;
};
// At the codes of TRITONSERVER_DataType.
constexpr std::array<Dtype, 14> kDtypes{{{"", 0},
                                         {"TYPE_BOOL", 1},
                                         {"TYPE_UINT8", 1},
                                         {"TYPE_UINT16", 2},
                                         {"TYPE_UINT32", 4},
                                         {"TYPE_UINT64", 8},
                                         {"TYPE_INT8", 1},
                                         {"TYPE_INT16", 2},
                                         {"TYPE_INT32", 4},
                                         {"TYPE_INT64", 8},
                                         {"TYPE_FP16", 2},
                                         {"TYPE_FP32", 4},
                                         {"TYPE_FP64", 8},
                                         {"TYPE_STRING", 0}}};
}  // namespace

uint64_t item_size(uint8_t dtype) { return dtype < kDtypes.size() ? kDtypes[dtype].size : 0; }

uint8_t dtype_code(std::string_view config_name) {
  for (size_t code = 1; code < kDtypes.size(); ++code) {
    if (kDtypes[code].name == config_name) return static_cast<uint8_t>(code);
  }
  throw FrameError("tensors of " + std::string(config_name) + " cannot travel");
}

uint64_t count(const uint64_t* shape, unsigned rank) {
  uint64_t product = 1;
  bool overflows = false, is_empty = false;
  for (unsigned axis = 0; axis < rank; ++axis) {
    if (shape[axis] > INT64_MAX) throw FrameError("a tensor has an impossible shape");
    overflows |= __builtin_mul_overflow(product, shape[axis], &product) || product > INT64_MAX;
    is_empty |= shape[axis] == 0;
  }
  if (is_empty) return 0;
  if (overflows) throw FrameError("a tensor has an impossible shape");
  return product;
}

std::vector<uint32_t> string_lengths(std::string_view encoded, uint64_t elements) {
  if (elements > encoded.size() / 4) throw FrameError("the lengths of " + std::to_string(elements) + " strings miss");
  std::vector<uint32_t> lengths(elements);
  if (elements) std::memcpy(lengths.data(), encoded.data(), 4 * elements);
  uint64_t end = 4 * elements;  // each adds less than 4 GiB, and there are less than 2^62
  for (const uint32_t length : lengths) {
    end += length;
    if (end > encoded.size()) break;
  }
  if (end != encoded.size()) throw FrameError("strings do not end where their tensor does");
  return lengths;
}

void split_strings(std::string_view interleaved, uint64_t elements, std::string& lengths, std::string& bytes) {
  const auto fail = [&] {
    return BadRequest(Code::invalid_argument, "a BYTES tensor of " + std::to_string(interleaved.size()) +
                                                  " bytes does not hold its " + std::to_string(elements) + " elements");
  };
  if (elements > interleaved.size() / 4) throw fail();
  lengths.resize(4 * elements);
  bytes.reserve(interleaved.size() - 4 * elements);
  size_t at = 0;
  for (uint64_t index = 0; index < elements; ++index) {
    uint32_t length = 0;
    if (interleaved.size() - at < 4) throw fail();
    std::memcpy(&length, interleaved.data() + at, 4);
    at += 4;
    if (interleaved.size() - at < length) throw fail();
    std::memcpy(lengths.data() + 4 * index, &length, 4);
    bytes.append(interleaved.data() + at, length);
    at += length;
  }
  if (at != interleaved.size()) throw fail();
}

}  // namespace pytriton
