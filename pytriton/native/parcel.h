// A response as it is handed to Python: one block that describes it, and the memory of its outputs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"

namespace pytriton {

struct Freer {
  void operator()(void* base) const { std::free(base); }
};
using Memory = std::unique_ptr<void, Freer>;

// What the server knows of an output's buffer.
struct Buffer {
  Memory memory;       // nothing, if somebody else's allocator made it
  uint64_t token = 0;  // which that allocator's buffer goes by
};

class Parcel {
 public:
  static constexpr uint32_t FINAL = 1, EMPTY = 2;
  // Python reads so many bytes at once, and more only if the block is longer; it has at least these.
  static constexpr size_t LEAST_BYTES = 256;

  // Takes the response, which may be none, apart and deletes it.
  Parcel(TRITONSERVER_InferenceResponse* response, bool final);

  // The block, which is the caller's to free, and so is now the memory that it names.
  char* hand_over();
  static bool is_final(const char* block);

 private:
  void describe(TRITONSERVER_InferenceResponse* response);
  // Returns their addresses.
  std::vector<uint64_t> describe_outputs(TRITONSERVER_InferenceResponse* response);
  void describe_parameters(TRITONSERVER_InferenceResponse* response);

  bool final_;
  std::string text_;
  std::vector<Memory> memories_;
};

}  // namespace pytriton
