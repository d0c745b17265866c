#include "config.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include "../frames/failure.h"
#include "../frames/json.h"
#include "../frames/memory.h"
#include "listener.h"

namespace pytriton::http {

namespace {

template <typename Number>
void set_number(Number& to, const Json& value) {
  const int64_t number = value.integer();
  if (number < 0 || static_cast<uint64_t>(number) > static_cast<uint64_t>(std::numeric_limits<Number>::max()))
    throw FrameError("the number " + std::to_string(number) + " is out of range");
  to = static_cast<Number>(number);
}

void set(std::string& to, const Json& value) { to = value.text(); }
void set(bool& to, const Json& value) { to = value.boolean(); }
void set(int& to, const Json& value) { set_number(to, value); }
void set(unsigned& to, const Json& value) { set_number(to, value); }
void set(int64_t& to, const Json& value) { set_number(to, value); }
void set(uint64_t& to, const Json& value) { set_number(to, value); }

void set(std::map<std::string, int64_t>& to, const Json& value) {
  for (const auto& [key, each] : value.object()) set(to[key], each);
}

void set(std::vector<int64_t>& to, const Json& value) {
  for (const Json& each : value.list()) to.push_back(each.integer());
}

void set(std::vector<std::string>& to, const Json& value) {
  for (const Json& each : value.list()) to.push_back(each.text());
}

void set(std::vector<Restriction>& to, const Json& value) {
  for (const Json& each : value.list()) {
    Restriction& restriction = to.emplace_back();
    for (const Json& endpoint : each["endpoints"].list()) restriction.endpoints.push_back(endpoint.text());
    restriction.header = each["header"].text();
    restriction.value = each["value"].text();
  }
}

}  // namespace

RouteOptions Config::route_options() const {
  RouteOptions options;
  options.max_nesting = max_nesting;
  options.header_forward_pattern = header_forward_pattern;
  options.grpc_header_forward_pattern = grpc.header_forward_pattern;
  options.server_socket = upstream;
  options.traffic = traffic;
  options.max_body_bytes = limits.max_body_bytes;
  options.is_traced = is_traced;
  options.predict = predict_options;
  return options;
}

bool Config::has_one_port() const {
  return !grpc.address.empty() && grpc.address == address && (is_path(address) || grpc.port == port);
}

Config read_config(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!(text << file.rdbuf())) throw Failure(Code::invalid_argument, path + " cannot be read");
  Config config;
  std::map<std::string_view, std::function<void(const Json&)>> members;
  const auto add = [&](const char* name, auto& member) {
    members[name] = [&member](const Json& value) { set(member, value); };
  };
  add("address", config.address);
  add("port", config.port);
  add("threads", config.threads);
  add("upstream", config.upstream);
  add("application", config.application);
  add("application_listener", config.application_listener);
  add("application_everywhere", config.application_everywhere);
  add("application_tls", config.application_tls);
  add("control", config.control);
  add("waits_for_models", config.waits_for_models);
  add("predict", config.predict);
  add("predict_timeout_ms", config.predict_options.timeout_ms);
  add("predict_heartbeat_ms", config.predict_options.heartbeat_ms);
  add("predict_max_body_bytes", config.predict_options.max_body_bytes);
  add("predict_max_requests", config.predict_options.max_requests);
  add("predict_shows_errors", config.predict_options.shows_errors);
  add("predict_access", config.predict_access);
  add("access", config.access);
  add("hosts", config.hosts);
  add("origins", config.origins);
  add("checks_hosts", config.checks_hosts);
  add("tls_certificate", config.tls_certificate);
  add("tls_key", config.tls_key);
  add("tls_authorities", config.tls_authorities);
  add("max_head_bytes", config.limits.max_head_bytes);
  add("max_headers", config.limits.max_headers);
  add("max_body_bytes", config.limits.max_body_bytes);
  add("max_json_bytes", config.max_json_bytes);
  add("max_buffered_bytes", config.max_buffered_bytes);
  add("max_buffered_bytes_per_address", config.max_buffered_bytes_per_address);
  add("max_nesting", config.max_nesting);
  add("max_connections", config.max_connections);
  add("max_connections_per_address", config.max_connections_per_address);
  add("max_requests", config.max_requests);
  add("head_timeout_s", config.head_timeout_s);
  add("body_timeout_s", config.body_timeout_s);
  add("least_bytes_per_second", config.least_bytes_per_second);
  add("idle_timeout_s", config.idle_timeout_s);
  add("metrics_address", config.metrics_address);
  add("metrics_port", config.metrics_port);
  add("vertex_ai_port", config.vertex_ai.port);
  add("vertex_ai_predict_route", config.vertex_ai.predict_route);
  add("vertex_ai_health_route", config.vertex_ai.health_route);
  add("vertex_ai_model", config.vertex_ai.model);
  add("sagemaker_port", config.sagemaker.port);
  add("sagemaker_model", config.sagemaker.model);
  add("grpc_address", config.grpc.address);
  add("grpc_port", config.grpc.port);
  add("grpc_access", config.grpc.access);
  add("grpc_tls_certificate", config.grpc.tls_certificate);
  add("grpc_tls_key", config.grpc.tls_key);
  add("grpc_tls_authorities", config.grpc.tls_authorities);
  add("grpc_header_forward_pattern", config.grpc.header_forward_pattern);
  add("grpc_infer_response_compression_level", config.grpc.response_compression);
  add("grpc_keepalive_time", config.grpc.keepalive_time_ms);
  add("grpc_keepalive_timeout", config.grpc.keepalive_timeout_ms);
  add("grpc_keepalive_permit_without_calls", config.grpc.permits_pings_without_calls);
  add("grpc_http2_min_recv_ping_interval_without_data", config.grpc.min_ping_interval_ms);
  add("grpc_http2_max_ping_strikes", config.grpc.max_ping_strikes);
  add("counters", config.counters);
  add("metrics", config.metrics);
  add("histogram_ns", config.buckets.histogram_ns);
  add("latency_ns", config.buckets.latency_ns);
  add("recent_requests", config.recent_requests);
  add("traffic", config.traffic);
  add("refused_ns", config.refused_ns);
  add("restarts", config.restarts);
  add("access_log", config.access_log);
  add("header_forward_pattern", config.header_forward_pattern);
  add("is_traced", config.is_traced);
  std::string name;
  try {
    const Json json = Json::parse(text.str());
    for (const auto& [key, value] : json.object()) {
      name = key;
      const auto member = members.find(name);
      if (member == members.end()) throw FrameError("there is no such member");
      member->second(value);
    }
  } catch (const FrameError& error) {
    throw Failure(Code::invalid_argument, path + ": " + name + ": " + error.what());
  }
  config.threads = std::max(config.threads, 1U);
  // What the C library keeps and what goes on to callables may be as much again; the application has a share of its
  // own.
  if (!config.max_buffered_bytes) config.max_buffered_bytes = static_cast<uint64_t>(Memory().available() / 3);
  return config;
}

}  // namespace pytriton::http
