#include "sites.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

namespace pytriton::http {

namespace {

bool has(const std::vector<std::string>& texts, std::string_view text) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& each) { return each == "*" || each == text; });
}

// The name in a Host, without its port and the brackets of an IPv6 address.
std::string name_of(std::string_view host) {
  if (!host.empty() && host.front() == '[') return std::string(host.substr(1, host.find(']') - 1));
  return in_lower_case(host.substr(0, host.find(':')));
}

bool is_address(const std::string& name) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, name.c_str(), address) == 1 || inet_pton(AF_INET6, name.c_str(), address) == 1;
}

// Whether an origin such as http://127.0.0.1:8000 is that of a Host.
bool is_same_host(std::string_view origin, std::string_view host) {
  const size_t slashes = origin.find("://");
  return slashes != std::string_view::npos && in_lower_case(origin.substr(slashes + 3)) == in_lower_case(host);
}

}  // namespace

Sites::Sites(const std::vector<std::string>& hosts, std::vector<std::string> origins, bool checks_hosts)
    : origins_(std::move(origins)), checks_hosts_(checks_hosts) {
  for (const std::string& each : hosts) hosts_.push_back(in_lower_case(each));
}

bool Sites::may_call(const Request& request) const {
  const std::string_view origin = request.header("origin"), site = request.header("sec-fetch-site");
  const bool is_of_page = !origin.empty() || (!site.empty() && site != "none" && site != "same-origin");
  if (!is_of_page || has(origins_, origin)) return true;
  return (site == "same-origin" || is_same_host(origin, request.header("host"))) && knows_host(request);
}

bool Sites::knows_host(const Request& request) const {
  const std::string_view host = request.header("host");
  if (!checks_hosts_ || host.empty()) return true;
  const std::string name = name_of(host);
  return name == "localhost" || ends_with(name, ".localhost") || is_address(name) || has(hosts_, name);
}

}  // namespace pytriton::http
