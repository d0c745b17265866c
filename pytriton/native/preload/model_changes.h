// Counts the calls that load and unload models, so that copies of models' configurations are known to be valid.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {
// A copy is valid if it was made while `begun` and `ended` were equal, and `begun` has not changed since.
struct PyTritonModelChanges {
  std::atomic<uint64_t> begun{0}, ended{0};
};
extern PyTritonModelChanges pytriton_model_changes;  // exported by the preloaded library
}

namespace pytriton {

// Counts one call while it lives.
class ModelChange {
 public:
  ModelChange() { ++pytriton_model_changes.begun; }
  ~ModelChange() { ++pytriton_model_changes.ended; }
  ModelChange(const ModelChange&) = delete;
  ModelChange& operator=(const ModelChange&) = delete;
};

}  // namespace pytriton
