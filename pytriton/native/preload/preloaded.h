// What the functions of the preloaded library have in common: each stands before one of the server's.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "../frames/triton.h"

namespace pytriton {

// Whether they do more than to call the server's, which whoever launches the server decides.
inline bool is_on() {
  static const bool on = [] {
    const char* variable = std::getenv("PYTRITON_REQUEST_CHECKS");
    return variable && std::string(variable) == "1";
  }();
  return on;
}

// The server's function of a name.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The error that refuses a request or a load.
inline TRITONSERVER_Error* refuse(const std::string& message) {
  static const auto new_error = next<decltype(TRITONSERVER_ErrorNew)>("TRITONSERVER_ErrorNew");
  return new_error(TRITONSERVER_ERROR_INVALID_ARG, message.c_str());
}

}  // namespace pytriton
