#include "forwarding.h"

#include <regex.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace pytriton::http {

namespace {

constexpr size_t kLongestName = 256;  // of a header that is matched

// What the server's RE2 and POSIX's expressions understand alike.
constexpr std::string_view kCommonSyntax = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.*+|()^$";

struct PatternDeleter {
  void operator()(regex_t* pattern) const {
    regfree(pattern);
    delete pattern;
  }
};
using Pattern = std::unique_ptr<regex_t, PatternDeleter>;

struct Settings {
  RouteOptions options;
  Pattern pattern;
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
  to.has_unknown_pattern = pattern.find_first_not_of(kCommonSyntax) != std::string::npos;
  if (pattern.empty() || to.has_unknown_pattern) return;
  auto compiled = std::make_unique<regex_t>();
  to.has_unknown_pattern = regcomp(compiled.get(), pattern.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB) != 0;
  if (!to.has_unknown_pattern) to.pattern = Pattern(compiled.release());
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
    std::string name(each.name);
    if (regexec(pattern.get(), name.c_str(), 0, nullptr, 0)) continue;
    Parameter& parameter = to.parameters.emplace_back();
    parameter.name = std::move(name);
    parameter.type = TRITONSERVER_PARAMETER_STRING;
    parameter.text = each.value;
  }
}

}  // namespace pytriton::http
