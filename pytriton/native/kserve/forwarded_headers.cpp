#include "forwarded_headers.h"

#include <algorithm>

namespace pytriton::http {

namespace {

constexpr size_t kLongestName = 256;  // of a header that is matched

constexpr size_t kLongestLine = 8 << 10;  // of a header that is sent on

// Whose parts an inference has, and in which trace it is.
constexpr std::string_view kOfInference[] = {"inference-header-content-length", "traceparent", "tracestate"};

// Names of parameters with a meaning in the protocol, which a header must not take.
constexpr std::string_view kReserved[] = {"sequence_id", "sequence_start",     "sequence_end", "priority",
                                          "timeout",     "binary_data_output", "headers"};

// How a request was sent is never a parameter of it for the server's own endpoint, which would follow it.
constexpr std::string_view kOfMessage[] = {
    "host", "content-length", "content-encoding", "content-type", "accept", "accept-encoding", "expect"};

template <size_t kCount>
bool is_one_of(std::string_view name, const std::string_view (&names)[kCount]) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](std::string_view each) { return equals_ignoring_case(name, each); });
}

bool is_reserved(std::string_view name) {
  constexpr std::string_view kOfServer = "triton_";
  return equals_ignoring_case(name.substr(0, kOfServer.size()), kOfServer) || is_one_of(name, kReserved);
}

// Whether a header is a parameter, or may be one as far as the pattern can be read here.
bool is_parameter(std::string_view name, Protocol protocol) {
  return name.size() <= kLongestName && !is_reserved(name) && matches_header_pattern(name, protocol);
}

}  // namespace

void forward_headers(const Request& from, InferenceRequest& to, Protocol protocol) {
  if (!has_header_pattern(protocol)) return;
  for (const Header& each : from.headers) {
    if (!is_parameter(each.name, protocol)) continue;
    Parameter& parameter = to.parameters.emplace_back();
    parameter.name = each.name;
    parameter.type = TRITONSERVER_PARAMETER_STRING;
    parameter.text = each.value;
  }
}

std::string headers_for_server(const Request& request) {
  std::string lines;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (name.size() + value.size() <= kLongestLine) lines.append(name).append(": ").append(value).append("\r\n");
  };
  for (const std::string_view name : kOfInference)
    if (const std::string_view value = request.header(name); !value.empty()) add(name, value);
  for (const Header& each : request.headers) {
    if (is_parameter(each.name, Protocol::http) && !is_hop_by_hop(each.name) && !is_one_of(each.name, kOfMessage) &&
        !is_one_of(each.name, kOfInference))
      add(each.name, each.value);
  }
  return lines;
}

}  // namespace pytriton::http
