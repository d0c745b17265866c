// A request to a model, sent through the server's C API.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../server_api.h"
#include "exchange.h"

namespace pytriton::http {

struct Input {
  std::string name;
  TRITONSERVER_DataType dtype{};
  std::vector<int64_t> shape;
  const void* data = nullptr;  // in the request's body, in shared memory, or in `storage`
  size_t size = 0;             // bytes
};

struct RequestedOutput {
  std::string name;
  uint32_t classes = 0;  // > 0: that many of the highest values, with their labels
  bool binary = false;
  std::string region;  // of shared memory, or empty
  uint64_t offset = 0, size = 0;
};

struct Parameter {
  std::string name;
  TRITONSERVER_ParameterType type{};
  std::string text;
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
};

struct InferenceRequest {
  std::string model;
  int64_t version = -1;  // the one that the server's policy chooses
  std::string id;
  std::vector<Input> inputs;
  std::vector<RequestedOutput> outputs;  // empty: all
  std::vector<Parameter> parameters;
  uint64_t sequence = 0, priority = 0, timeout_us = 0;
  std::string sequence_name;
  bool sequence_start = false, sequence_end = false;
  std::vector<std::unique_ptr<char[]>> storage;  // data of inputs that was converted
};

// One response of a model; deletes the server's.
class ModelResponse;

// Called on a thread of the server for each response, then once with `final`; `response` may be nullptr then.
using OnResponse = std::function<void(TRITONSERVER_InferenceResponse* response, bool final)>;

// Sends a request. Keeps the exchange, whose body holds inputs, until the server has released them. The request is
// cancelled if the client disconnects.
//
// Throws Failure if the server refuses it; `on_response` is not called then.
void infer(TRITONSERVER_Server* server, Exchange& exchange, InferenceRequest&& request, OnResponse on_response);

}  // namespace pytriton::http
