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

std::string_view Request::header(std::string_view name) const {
  for (const Header& each : headers)
    if (equals_ignoring_case(each.name, name)) return each.value;
  return {};
}

}  // namespace pytriton::http
