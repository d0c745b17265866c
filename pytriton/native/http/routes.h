// The routes that are answered in this process. Each returns false, without having answered, if it leaves the request
// to the process behind it: Triton's own HTTP endpoint for /v2, the REST front for the others.
#pragma once

#include <cstdint>
#include <string_view>

#include "../server_api.h"
#include "exchange.h"

namespace pytriton::http {

// Where a request goes: /v2/models/{model}[/versions/{version}]/{action}, or /predict/{model}[/{version}].
struct Target {
  std::string model;
  int64_t version = -1;
};

bool infer_v2(TRITONSERVER_Server* server, Exchange& exchange, const Target& target);                  // infer.cpp
bool generate(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, bool is_stream);  // generate.cpp
bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target);                   // predict.cpp

}  // namespace pytriton::http
