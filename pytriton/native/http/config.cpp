#include "config.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include "../failure.h"
#include "../json.h"
#include "../memory.h"

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
  options.is_traced = is_traced;
  options.predict = predict_options;
  return options;
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
  add("reuse_port", config.reuse_port);
  add("threads", config.threads);
  add("upstream", config.upstream);
  add("application", config.application);
  add("application_listener", config.application_listener);
  add("application_everywhere", config.application_everywhere);
  add("control", config.control);
  add("waits_for_models", config.waits_for_models);
  add("predict", config.predict);
  add("predict_timeout_ms", config.predict_options.timeout_ms);
  add("predict_heartbeat_ms", config.predict_options.heartbeat_ms);
  add("predict_max_body_bytes", config.predict_options.max_body_bytes);
  add("predict_max_requests", config.predict_options.max_requests);
  add("predict_has_cors", config.predict_options.has_cors);
  add("predict_needs_token", config.predict_options.needs_token);
  add("predict_access_token", config.predict_options.access_token);
  add("access", config.access);
  add("tls_certificate", config.tls_certificate);
  add("tls_key", config.tls_key);
  add("tls_authorities", config.tls_authorities);
  add("max_head_bytes", config.limits.max_head_bytes);
  add("max_headers", config.limits.max_headers);
  add("max_body_bytes", config.limits.max_body_bytes);
  add("max_buffered_bytes", config.max_buffered_bytes);
  add("max_nesting", config.max_nesting);
  add("max_connections", config.max_connections);
  add("max_connections_per_address", config.max_connections_per_address);
  add("max_requests", config.max_requests);
  add("head_timeout_s", config.head_timeout_s);
  add("body_timeout_s", config.body_timeout_s);
  add("idle_timeout_s", config.idle_timeout_s);
  add("forward_timeout_s", config.forward_timeout_s);
  add("counters", config.counters);
  add("metrics", config.metrics);
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
  if (!config.max_buffered_bytes) config.max_buffered_bytes = static_cast<uint64_t>(Memory().available() / 2);
  return config;
}

}  // namespace pytriton::http
