// The server's errors as exceptions, and owners for what it hands us.
#pragma once

#include <memory>
#include <string>

#include "failure.h"
#include "triton.h"

namespace pytriton {

struct ErrorDeleter {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};
using ErrorPointer = std::unique_ptr<TRITONSERVER_Error, ErrorDeleter>;

struct ResponseDeleter {
  void operator()(TRITONBACKEND_Response* response) const { ErrorPointer{TRITONBACKEND_ResponseDelete(response)}; }
};
using ResponsePointer = std::unique_ptr<TRITONBACKEND_Response, ResponseDeleter>;

struct FactoryDeleter {
  void operator()(TRITONBACKEND_ResponseFactory* factory) const {
    ErrorPointer{TRITONBACKEND_ResponseFactoryDelete(factory)};
  }
};
using FactoryPointer = std::unique_ptr<TRITONBACKEND_ResponseFactory, FactoryDeleter>;

struct MessageDeleter {
  void operator()(TRITONSERVER_Message* message) const { ErrorPointer{TRITONSERVER_MessageDelete(message)}; }
};
using MessagePointer = std::unique_ptr<TRITONSERVER_Message, MessageDeleter>;

// Throws Failure if the server refused.
inline void check(TRITONSERVER_Error* error) {
  if (!error) return;
  const ErrorPointer owned(error);
  throw Failure(static_cast<Code>(TRITONSERVER_ErrorCode(error)), TRITONSERVER_ErrorMessage(error));
}

// For what cannot be helped; whether the server did it.
inline bool ignore(TRITONSERVER_Error* error) { return !ErrorPointer(error); }

inline void log_warning(const std::string& message) {
  ignore(TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, "pytriton", 0, ("pytriton: " + message).c_str()));
}

}  // namespace pytriton
