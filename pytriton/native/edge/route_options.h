// Settings of the server that the routes need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pytriton::http {

// Settings of the application whose /predict is answered here (pytriton/rest/config.py).
struct PredictOptions {
  int64_t timeout_ms = 60'000, heartbeat_ms = 15'000;
  uint64_t max_body_bytes = 64 << 20;
  uint64_t max_requests = 1024;  // in progress
  bool shows_errors = true;      // else the messages of exceptions in callables are for the log alone
};

struct RouteOptions {
  unsigned max_nesting = 64;                    // levels of JSON
  std::string header_forward_pattern;           // headers that become parameters of requests; empty: none
  std::string grpc_header_forward_pattern;      // the same, of gRPC's metadata
  std::string server_socket;                    // of the server's own endpoint
  std::string traffic;                          // folder of the files of splits and shadows; empty: none
  uint64_t max_body_bytes = uint64_t{2} << 30;  // also of the inputs in shared memory
  bool is_traced = false;                       // requests are left to Triton's endpoint, which makes traces
  PredictOptions predict;
};
const RouteOptions& route_options();
void set_route_options(const RouteOptions& options);  // before the first request; throws Failure

// Whether inferences are left to the server's own endpoint: while it makes traces, or if it has to choose the headers.
bool is_left_to_server();

// The pattern of headers that become parameters: whether it can be read here, and whether a name matches it, or may do
// so as far as that is known.
enum class Protocol { http, grpc };
bool has_header_pattern(Protocol protocol);
bool matches_header_pattern(std::string_view name, Protocol protocol);

}  // namespace pytriton::http
