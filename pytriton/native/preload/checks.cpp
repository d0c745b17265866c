// Part of the library that is preloaded into servers: refuses requests that would end the bundled one. The server's
// endpoints call these functions while they read a request; each one checks what the endpoints do not, then calls the
// server's own. Newer servers have such checks themselves; docs/security.md says which.
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include "../frames/memory.h"
#include "../frames/tensors.h"
#include "../frames/triton.h"
#include "model_names.h"
#include "preloaded.h"
#include "refusal.h"

extern "C" {
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_Server;
}

namespace {

using pytriton::is_on;
using pytriton::next;
using pytriton::refuse;
using Error = TRITONSERVER_Error*;
using Request = TRITONSERVER_InferenceRequest*;

constexpr unsigned kMostParameters = 1024, kMostOutputs = 1 << 14;
constexpr uint64_t kSmallBytes = 64 << 20;  // of an input; to look at the memory takes 0.1 ms

// The endpoints read a request on one thread, and another only when they have done with the first.
struct Counts {
  unsigned parameters = 0;
  std::unordered_set<std::string> outputs;
};
thread_local Counts counts;

Error start_request() {
  counts.parameters = 0;
  if (!counts.outputs.empty()) counts.outputs.clear();
  return nullptr;
}

// A parameter is looked for among those before it, so the time that they take grows with the square of their number.
Error count_parameter() {
  if (counts.parameters++ < kMostParameters) return nullptr;
  return refuse("a request has more than " + std::to_string(kMostParameters) +
                " parameters, with forwarded headers counted; send large data as inputs");
}

// Triton keeps one of two outputs of a name, and the parameters of one of them.
Error check_output(const char* name) {
  if (!counts.outputs.insert(name ? name : "").second)
    return refuse("output '" + std::string(name) + "' is requested more than once; name each output once");
  if (counts.outputs.size() <= kMostOutputs) return nullptr;
  return refuse("a request asks for more than " + std::to_string(kMostOutputs) + " outputs; name each output once");
}

// For JSON, the server makes room for as many elements as the shape says, before it has looked at how many there are.
// It does not notice when the number of bytes overflows, and ends when there is no such room.
Error check_shape(const char* name, TRITONSERVER_DataType dtype, const int64_t* shape, uint64_t rank) {
  const uint64_t item = pytriton::item_size(static_cast<uint8_t>(dtype));
  uint64_t bytes = item ? item : 4;  // a string has 4 bytes for its length
  bool is_possible = true, is_empty = false;
  for (uint64_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 0) is_possible = false;
    if (shape[axis] == 0) is_empty = true;
    if (shape[axis] > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(shape[axis]), &bytes))
      is_possible = false;
  }
  const std::string input = "input '" + std::string(name ? name : "") + "'";
  if (!is_possible || bytes > INT64_MAX) return refuse(input + " has a shape with negative or too large extents");
  if (is_empty || bytes < kSmallBytes) return nullptr;
  const double available = pytriton::Memory().available();
  if (static_cast<double>(bytes) <= available) return nullptr;
  return refuse(input + " would have " + std::to_string(bytes) +
                " bytes, more than the memory that is available to the server");
}

// The data of a compressed body that was refused while it was inflated (http_checks.cpp).
Error check_data(const void* data, size_t bytes, TRITONSERVER_MemoryType memory) {
  const auto& marker = pytriton::refused_body();
  if (memory == TRITONSERVER_MEMORY_GPU || bytes < marker.size()) return nullptr;
  if (std::memcmp(data, marker.data(), marker.size()) != 0) return nullptr;
  return refuse("the compressed body is broken or incomplete, or becomes too large");
}

// Programs that the server starts shall not get this library.
[[gnu::constructor]] void keep_to_this_process() {
  const char* variable = std::getenv("LD_PRELOAD");
  if (!variable || !dlsym(RTLD_NEXT, "TRITONSERVER_InferenceRequestNew")) return;  // not the server: its guard
  std::string libraries = std::string(variable) + ":";
  const std::string own = "libpytriton_preload.so:";
  const size_t at = libraries.find(own);
  if (at == std::string::npos) return;
  libraries.erase(at, own.size());
  if (libraries.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    libraries.pop_back();
    setenv("LD_PRELOAD", libraries.c_str(), 1);
  }
}

}  // namespace

// The check, and the arguments of the server's function that is called then.
#define CHECKED(check, function, ...)                               \
  static const auto server_s = next<decltype(function)>(#function); \
  if (is_on())                                                      \
    if (Error error = check) return error;                          \
  return server_s(__VA_ARGS__)

extern "C" {

Error TRITONSERVER_InferenceRequestNew(Request* request, TRITONSERVER_Server* server, const char* model,
                                       int64_t version) {
  static const auto server_s = next<decltype(TRITONSERVER_InferenceRequestNew)>("TRITONSERVER_InferenceRequestNew");
  if (is_on())
    if (Error error = start_request()) return error;
  return pytriton::with_nearest_name(server_s(request, server, model, version), model);
}

Error TRITONSERVER_InferenceRequestAddInput(Request request, const char* name, TRITONSERVER_DataType dtype,
                                            const int64_t* shape, uint64_t rank) {
  CHECKED(check_shape(name, dtype, shape, rank), TRITONSERVER_InferenceRequestAddInput, request, name, dtype, shape,
          rank);
}

Error TRITONSERVER_InferenceRequestAppendInputData(Request request, const char* name, const void* data, size_t bytes,
                                                   TRITONSERVER_MemoryType memory, int64_t device) {
  CHECKED(check_data(data, bytes, memory), TRITONSERVER_InferenceRequestAppendInputData, request, name, data, bytes,
          memory, device);
}

Error TRITONSERVER_InferenceRequestAddRequestedOutput(Request request, const char* name) {
  CHECKED(check_output(name), TRITONSERVER_InferenceRequestAddRequestedOutput, request, name);
}

Error TRITONSERVER_InferenceRequestSetStringParameter(Request request, const char* key, const char* value) {
  CHECKED(count_parameter(), TRITONSERVER_InferenceRequestSetStringParameter, request, key, value);
}

Error TRITONSERVER_InferenceRequestSetIntParameter(Request request, const char* key, int64_t value) {
  CHECKED(count_parameter(), TRITONSERVER_InferenceRequestSetIntParameter, request, key, value);
}

Error TRITONSERVER_InferenceRequestSetBoolParameter(Request request, const char* key, bool value) {
  CHECKED(count_parameter(), TRITONSERVER_InferenceRequestSetBoolParameter, request, key, value);
}

Error TRITONSERVER_InferenceRequestSetDoubleParameter(Request request, const char* key, double value) {
  CHECKED(count_parameter(), TRITONSERVER_InferenceRequestSetDoubleParameter, request, key, value);
}

// The server divides by it when a client asks for the classes of an output, before it refuses those of strings.
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType dtype) {
  static const auto server_s = next<decltype(TRITONSERVER_DataTypeByteSize)>("TRITONSERVER_DataTypeByteSize");
  const uint32_t size = server_s(dtype);
  return size || !is_on() ? size : 1;
}
}
