#include "forwarding.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <regex>
#include <stdexcept>

namespace pytriton::http {

namespace {

constexpr size_t kLongestName = 256;  // of a header that is matched: std::regex recurses

// What the server's RE2 and std::regex understand alike.
constexpr std::string_view kCommonSyntax = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.*+|()^$";

struct Settings {
  RouteOptions options;
  std::optional<std::regex> pattern;
  bool has_unknown_pattern = false;
};

Settings& settings() {
  static Settings settings;
  return settings;
}

std::atomic<bool> is_traced{false};

}  // namespace

const RouteOptions& route_options() { return settings().options; }

void set_route_options(const RouteOptions& options) {
  Settings& to = settings();
  to.options = options;
  is_traced = options.is_traced;
  const std::string& pattern = options.header_forward_pattern;
  to.pattern.reset();
  to.has_unknown_pattern =
      pattern.find_first_not_of(kCommonSyntax) != std::string::npos || pattern.find("(?") != std::string::npos;
  if (pattern.empty() || to.has_unknown_pattern) return;
  try {
    to.pattern.emplace(pattern, std::regex::ECMAScript | std::regex::icase | std::regex::optimize);
  } catch (const std::regex_error&) {
    to.has_unknown_pattern = true;
  }
}

void leave_inference_to_server(bool is_left) { is_traced = is_left; }

bool is_left_to_server(const Request& request) {
  if (is_traced.load(std::memory_order_relaxed) || settings().has_unknown_pattern) return true;
  if (!settings().pattern) return false;
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [](const Header& each) { return each.name.size() > kLongestName; });
}

void forward_headers(const Request& from, InferenceRequest& to) {
  const auto& pattern = settings().pattern;
  if (!pattern) return;
  for (const Header& each : from.headers) {
    if (!std::regex_search(each.name.begin(), each.name.end(), *pattern)) continue;
    Parameter& parameter = to.parameters.emplace_back();
    parameter.name = each.name;
    parameter.type = TRITONSERVER_PARAMETER_STRING;
    parameter.text = each.value;
  }
}

}  // namespace pytriton::http
