// A response as Python gets it: one block of memory that describes it, and the memory of its outputs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../frames/server_api.h"

namespace pytriton {

struct MemoryDeleter {
  void operator()(void* base) const { std::free(base); }
};
using Memory = std::unique_ptr<void, MemoryDeleter>;

// What the server stores with an output's buffer.
struct OutputBuffer {
  Memory memory;       // empty if an allocator in Python made the buffer
  uint64_t token = 0;  // identifies that allocator's buffer
};

class EncodedResponse {
 public:
  static constexpr uint32_t kFinal = 1, kEmpty = 2;
  // Python reads this many bytes at once, and more only if the block is longer. Every block has at least these.
  static constexpr size_t kMinBytes = 256;

  // Encodes the response, which may be nullptr, and deletes it.
  EncodedResponse(TRITONSERVER_InferenceResponse* response, bool final);

  // Returns the block. The caller frees it, and the memory whose addresses it contains.
  char* release();
  static bool is_final(const char* block);

 private:
  void encode(TRITONSERVER_InferenceResponse* response);
  // Returns the outputs' addresses.
  std::vector<uint64_t> encode_outputs(TRITONSERVER_InferenceResponse* response);
  void encode_parameters(TRITONSERVER_InferenceResponse* response);

  bool final_;
  std::string text_;
  std::vector<Memory> memories_;
};

}  // namespace pytriton
