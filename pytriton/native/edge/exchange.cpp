#include "exchange.h"

#include <algorithm>

namespace pytriton::http {

namespace {

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter; }

}  // namespace

bool equals_ignoring_case(std::string_view one, std::string_view lower_case) {
  return one.size() == lower_case.size() &&
         std::equal(one.begin(), one.end(), lower_case.begin(), [](char a, char b) { return lower(a) == b; });
}

std::string in_lower_case(std::string_view text) {
  std::string folded(text);
  for (char& each : folded) each = lower(each);
  return folded;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_hop_by_hop(std::string_view name) {
  constexpr std::string_view kNames[] = {"connection",          "keep-alive", "proxy-authenticate",
                                         "proxy-authorization", "te",         "trailer",
                                         "transfer-encoding",   "upgrade",    "proxy-connection"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view each) { return equals_ignoring_case(name, each); });
}

std::string_view Request::header(std::string_view name) const {
  for (const Header& each : headers)
    if (equals_ignoring_case(each.name, name)) return each.value;
  return {};
}

}  // namespace pytriton::http
