// What the edge is told when it starts: a JSON file, written by whoever launches the server.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "request_parser.h"
#include "route_options.h"

namespace pytriton::http {

// Groups of endpoints, as the server's option --http-restricted-api names them, that ask for a header.
struct Restriction {
  std::vector<std::string> endpoints;
  std::string header, value;
};

// Upper bounds of buckets, in order, as pytriton/constants.py has them.
struct Buckets {
  std::vector<int64_t> histogram_ns;  // of the histograms that pages of metrics show
  std::vector<int64_t> latency_ns;    // finer, for quantiles of a model
};

// The port of a cloud, and the model that it is for.
struct CloudOptions {
  int port = 0;  // 0: none
  std::string predict_route, health_route, model;
};

// The gRPC endpoint. Pings: as the server's options --grpc-keepalive-* and --grpc-http2-* have them.
struct GrpcOptions {
  std::string address;  // as that of HTTP; empty: there is none
  int port = 8001;
  std::vector<Restriction> access;
  std::string tls_certificate, tls_key, tls_authorities;  // paths of PEM files
  std::string header_forward_pattern;
  std::string response_compression = "none";  // of inferences: low, medium or high
  bool permits_pings_without_calls = false;
  int64_t keepalive_time_ms = 7'200'000, keepalive_timeout_ms = 20'000, min_ping_interval_ms = 300'000;
  int max_ping_strikes = 2;  // 0: any
};

struct Config {
  std::string address = "0.0.0.0";  // or "::", a name, or "unix:" and a path
  int port = 8000;
  unsigned threads = 1;
  std::string upstream;                // path of the socket of the server's own HTTP endpoint
  std::string application;             // path of the socket of the ASGI application; empty: there is none
  int application_listener = -1;       // socket that listens for what is not below /v2, inherited; negative: none
  bool application_everywhere = true;  // `port` serves that, too
  bool application_tls = false;        // `application_listener` is encrypted as `port` is
  std::string control;                 // path of the socket for whoever launched the server; empty: none
  bool waits_for_models = false;       // the server is not ready until whoever launched it says so
  bool predict = false;                // /predict is answered here, as far as that is possible
  PredictOptions predict_options;
  std::vector<Restriction> access, predict_access;  // of the routes of the server, and of /predict
  std::vector<std::string> hosts, origins;          // that browsers may call by, and whose pages may call (sites.h)
  bool checks_hosts = false;
  std::string tls_certificate, tls_key, tls_authorities;  // paths of PEM files

  Limits limits;
  unsigned max_nesting = 64;           // levels of JSON
  uint64_t max_json_bytes = 64 << 20;  // of a request, and of any body that is compressed, before and after that
  uint64_t max_buffered_bytes = 0;     // that requests and answers take; 0: a third of the memory left at the start
  uint64_t max_buffered_bytes_per_address = 0;                  // 0: half of that
  size_t max_connections = 0, max_connections_per_address = 0;  // 0: no limit
  size_t max_requests = 0;                                      // in flight; 0: no limit
  int64_t head_timeout_s = 30;
  int64_t body_timeout_s = 60;            // without a byte of a body, or of an answer that the client takes
  int64_t least_bytes_per_second = 1024;  // of both, on average in such a time
  int64_t idle_timeout_s = 600;

  std::string metrics_address;
  int metrics_port = 0;  // of the server's metrics alone; 0: none
  CloudOptions vertex_ai, sagemaker;
  GrpcOptions grpc;

  std::string counters;  // file of those that the application's processes share (shared_counters.h); empty: none
  Buckets buckets;
  bool metrics = false;                       // the server's and ours at /metrics
  std::string traffic;                        // folder of the files of splits and shadows; empty: none
  std::string recent_requests;                // file of those that came last (recent_requests.h); empty: none
  std::map<std::string, int64_t> refused_ns;  // addresses of clients, until a time of now_ns()
  uint64_t restarts = 0;                      // of the server, for our metrics
  std::string access_log;                     // a file, or "stderr"; empty: none
  std::string header_forward_pattern;
  bool is_traced = false;

  RouteOptions route_options() const;

  // Whether HTTP and gRPC come to one socket, whose restrictions and certificate are the same for both.
  bool has_one_port() const;
};

// Throws Failure if the file cannot be read, is not JSON, or has another member or type.
Config read_config(const std::string& path);

}  // namespace pytriton::http
