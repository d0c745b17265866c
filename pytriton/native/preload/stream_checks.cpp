// Part of the library that is preloaded into servers: lets the requests on a gRPC stream be answered in one way.
//
// The endpoint has two: one for models that answer once, and one for decoupled models. When both answer on a stream,
// two messages are written at once, and gRPC ends the process. A request that is refused counts as one of the first
// kind, if its model is not known or its version is no number. So once there is a decoupled model, the endpoint is told
// that every model is one, and that every version is a number.
#include "stream_checks.h"

#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../frames/triton.h"
#include "model_names.h"
#include "preloaded.h"
#include "program.h"

namespace {

using Error = TRITONSERVER_Error*;

constexpr uint32_t kDecoupled = 2;
constexpr int64_t kLatest = -1;
// Where the stream's endpoint asks for the properties of a model, in the bundled program of Triton 2.51 for x86_64.
constexpr uintptr_t kStreamCall = 0x1ffe0c;

std::atomic<bool> has_decoupled{false};

Error properties(TRITONSERVER_Server* server, const char* model, int64_t version, uint32_t* flags, void** data) {
  using Get = Error(TRITONSERVER_Server*, const char*, int64_t, uint32_t*, void**);
  static const auto server_s = pytriton::next<Get>("TRITONSERVER_ServerModelTransactionProperties");
  Error error = server_s(server, model, version, flags, data);
  if (!error && *flags & kDecoupled) has_decoupled = true;
  return error;
}

void forget(Error error) {
  static const auto delete_error = pytriton::next<decltype(TRITONSERVER_ErrorDelete)>("TRITONSERVER_ErrorDelete");
  if (error) delete_error(error);
}

// Whether the stream's endpoint has called what runs now: looks at the stack, which takes some microseconds.
bool is_in_stream() {
  struct Search {
    void* function = nullptr;
    bool is_found = false;
  };
  static void* const function =
      _Unwind_FindEnclosingFunction(static_cast<char*>(pytriton::beginning_of_program()) + kStreamCall);
  Search search{function};
  if (!function) return false;
  const auto look = [](_Unwind_Context* frame, void* data) {
    auto& search = *static_cast<Search*>(data);
    void* const address = reinterpret_cast<void*>(_Unwind_GetIP(frame) - 1);  // NOLINT
    search.is_found = _Unwind_FindEnclosingFunction(address) == search.function;
    return search.is_found ? _URC_END_OF_STACK : _URC_NO_REASON;
  };
  _Unwind_Backtrace(look, &search);
  return search.is_found;
}

}  // namespace

namespace pytriton {

void note_loaded(TRITONSERVER_Server* server, const char* model) {
  add_model_name(model);
  uint32_t flags = 0;
  if (is_on() && !has_decoupled) forget(properties(server, model, kLatest, &flags, nullptr));
}

}  // namespace pytriton

extern "C" Error TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server* server, const char* model,
                                                               int64_t version, uint32_t* flags, void** data) {
  Error error = properties(server, model, version, flags, data);
  const bool is_stream =
      pytriton::is_on() && has_decoupled && pytriton::offset_in_program(__builtin_return_address(0)) == kStreamCall;
  if (!is_stream) return pytriton::with_nearest_name(error, model);
  forget(error);  // the request is refused when it is made, with the same error
  *flags = kDecoupled;
  return nullptr;
}

// std::stol reads the version of a model with it. A version that is none becomes one that no model has.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name,google-runtime-int)
extern "C" long strtol(const char* text, char** end, int base) {
  static const auto library_s = pytriton::next<decltype(strtol)>("strtol");
  const int before = errno;
  errno = 0;
  char* own_end = nullptr;
  const auto value = library_s(text, &own_end, base);
  if (end) *end = own_end;
  const bool is_number = errno == 0 && own_end != text && value >= 0;
  if (is_number || !end || !has_decoupled || !pytriton::is_on() ||
      !pytriton::is_in_program(__builtin_return_address(0)) || !is_in_stream()) {
    if (errno == 0) errno = before;
    return value;
  }
  *end = const_cast<char*>(text) + std::strlen(text);  // NOLINT
  errno = before;
  return INT64_MAX;
}
