// A backend that copies each input INPUT<x> to the output OUTPUT<x>: the limit of the server's edge.
#include <cstring>
#include <string>

#include "frames/triton.h"

namespace {

using Error = TRITONSERVER_Error*;

Error copy(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, uint32_t index) {
  TRITONBACKEND_Input* input = nullptr;
  const char* name = nullptr;
  TRITONSERVER_DataType dtype{};
  const int64_t* shape = nullptr;
  uint32_t rank = 0;
  uint32_t buffers = 0;
  uint64_t size = 0;
  if (Error error = TRITONBACKEND_RequestInputByIndex(request, index, &input)) return error;
  if (Error error = TRITONBACKEND_InputProperties(input, &name, &dtype, &shape, &rank, &size, &buffers)) return error;
  TRITONBACKEND_Output* output = nullptr;
  const std::string output_name = "OUTPUT" + std::string(name).substr(std::strlen("INPUT"));
  if (Error error = TRITONBACKEND_ResponseOutput(response, &output, output_name.c_str(), dtype, shape, rank))
    return error;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  void* target = nullptr;
  if (Error error = TRITONBACKEND_OutputBuffer(output, &target, size, &memory, &device)) return error;
  for (uint32_t part = 0; part < buffers; ++part) {
    const void* source = nullptr;
    uint64_t bytes = 0;
    if (Error error = TRITONBACKEND_InputBuffer(input, part, &source, &bytes, &memory, &device)) return error;
    std::memcpy(target, source, bytes);
    target = static_cast<char*>(target) + bytes;
  }
  return nullptr;
}

Error respond(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = nullptr;
  if (Error error = TRITONBACKEND_ResponseNew(&response, request)) return error;
  uint32_t count = 0;
  Error failure = TRITONBACKEND_RequestInputCount(request, &count);
  for (uint32_t index = 0; index < count && failure == nullptr; ++index) failure = copy(request, response, index);
  Error error = TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failure);
  if (failure != nullptr) TRITONSERVER_ErrorDelete(failure);
  return error;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Error
TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request** requests, uint32_t count) {
  for (uint32_t index = 0; index < count; ++index) {
    if (Error error = respond(requests[index])) TRITONSERVER_ErrorDelete(error);
    if (Error error = TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL))
      TRITONSERVER_ErrorDelete(error);
  }
  return nullptr;
}
