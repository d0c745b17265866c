#include "route_options.h"

#include <regex.h>

#include <memory>

#include "../frames/failure.h"

namespace pytriton::http {

namespace {

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
  Pattern pattern, grpc_pattern;
  bool has_unknown_pattern = false;
};

Settings& settings() {
  static Settings settings;
  return settings;
}

// None if it is empty, or cannot be read here.
Pattern compiled(const std::string& text) {
  if (text.empty() || text.find_first_not_of(kCommonSyntax) != std::string::npos) return nullptr;
  auto pattern = std::make_unique<regex_t>();
  if (regcomp(pattern.get(), text.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB) != 0) return nullptr;
  return Pattern(pattern.release());
}

}  // namespace

const RouteOptions& route_options() { return settings().options; }

void set_route_options(const RouteOptions& options) {
  Settings& to = settings();
  to.options = options;
  to.pattern = compiled(options.header_forward_pattern);
  to.has_unknown_pattern = !to.pattern && !options.header_forward_pattern.empty();
  to.grpc_pattern = compiled(options.grpc_header_forward_pattern);
  if (!to.grpc_pattern && !options.grpc_header_forward_pattern.empty())
    throw Failure(Code::invalid_argument, "the pattern '" + options.grpc_header_forward_pattern +
                                              "' of gRPC's metadata has syntax that only grpc_frontend='triton' reads");
}

bool is_left_to_server() { return settings().options.is_traced || settings().has_unknown_pattern; }

bool has_header_pattern(Protocol protocol) {
  return (protocol == Protocol::grpc ? settings().grpc_pattern : settings().pattern) != nullptr;
}

bool matches_header_pattern(std::string_view name, Protocol protocol) {
  const auto& pattern = protocol == Protocol::grpc ? settings().grpc_pattern : settings().pattern;
  if (!pattern) return protocol == Protocol::http && settings().has_unknown_pattern;
  return regexec(pattern.get(), std::string(name).c_str(), 0, nullptr, 0) == 0;
}

}  // namespace pytriton::http
