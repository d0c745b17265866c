// The routes that are answered in this process. Each returns false, without having answered, if it leaves the request
// to the process behind it: Triton's own HTTP endpoint for /v2, the REST front for the others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "../server_api.h"
#include "exchange.h"

namespace pytriton::http {

// Where a request goes: /v2/models/{model}[/versions/{version}]/{action}, or /predict/{model}[/{version}].
struct Target {
  std::string model;
  int64_t version = -1;
};

// Settings of the application whose /predict is answered here (pytriton/rest/config.py).
struct PredictOptions {
  int64_t timeout_ms = 60'000, heartbeat_ms = 15'000;
  uint64_t max_body_bytes = 64 << 20;
  uint64_t max_requests = 1024;  // in progress
  bool has_cors = false;         // requests with an origin are the application's
  bool needs_token = false;      // requests with other tokens than this one are the application's
  std::string access_token;
};

// Settings of the server that the routes need.
struct RouteOptions {
  unsigned max_nesting = 64;           // levels of JSON
  std::string header_forward_pattern;  // headers that become parameters of requests; empty: none
  bool is_traced = false;              // requests are left to Triton's endpoint, which makes traces
  PredictOptions predict;
};
void set_route_options(const RouteOptions& options);  // before the first request

// At any time: tracing has been turned on or off.
void leave_inference_to_server(bool is_left);

bool infer_v2(TRITONSERVER_Server* server, Exchange& exchange, const Target& target);                  // infer.cpp
bool generate(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, bool is_stream);  // generate.cpp

// `leave` leaves the request to the application if that turns out later to be necessary, on any thread.
bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()> leave);

}  // namespace pytriton::http
