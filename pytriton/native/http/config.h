// What the front end is told when it starts: a JSON file, written by whoever launches the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "request_parser.h"
#include "routes.h"

namespace pytriton::http {

// Groups of endpoints, as the server's option --http-restricted-api names them, that ask for a header.
struct Restriction {
  std::vector<std::string> endpoints;
  std::string header, value;
};

struct Config {
  std::string address = "0.0.0.0";  // or "::", a name, or "unix:" and a path
  int port = 8000;
  bool reuse_port = false;  // other processes may listen on it, too
  unsigned threads = 1;
  std::string upstream;                // path of the socket of the server's own HTTP endpoint
  std::string application;             // path of the socket of the ASGI application; empty: there is none
  int application_listener = -1;       // socket that listens for what is not below /v2, inherited; negative: none
  bool application_everywhere = true;  // `port` serves that, too
  std::string control;                 // path of the socket for whoever launched the server; empty: none
  bool waits_for_models = false;       // the server is not ready until whoever launched it says so
  bool predict = false;                // /predict is answered here, as far as that is possible
  PredictOptions predict_options;
  std::vector<Restriction> access;
  std::string tls_certificate, tls_key, tls_authorities;  // paths of PEM files

  Limits limits;
  unsigned max_nesting = 64;        // levels of JSON
  uint64_t max_buffered_bytes = 0;  // of requests that are being received or are in flight; 0: half of what is left
  size_t max_connections = 0, max_connections_per_address = 0;  // 0: no limit
  size_t max_requests = 0;                                      // in flight; 0: no limit
  int64_t head_timeout_s = 30;
  int64_t body_timeout_s = 60;  // and a second for each KiB that has come; also for answers that nobody reads
  int64_t idle_timeout_s = 600;
  int64_t forward_timeout_s = 0;  // until the process behind answers; 0: no limit

  std::string counters;    // file of those that the application's processes share (shared_counters.h); empty: none
  bool metrics = false;    // the server's and ours at /metrics
  std::string access_log;  // a file, or "stderr"; empty: none
  std::string header_forward_pattern;
  bool is_traced = false;

  RouteOptions route_options() const;
};

// Throws Failure if the file cannot be read, is not JSON, or has another member or type.
Config read_config(const std::string& path);

}  // namespace pytriton::http
