// Which requests need a header with a secret.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config.h"
#include "exchange.h"

namespace pytriton::http {

// The group of endpoints, in the words of --http-restricted-api, that a path below /v2 belongs to; empty for others.
std::string_view endpoint_group(std::string_view path);

class Access {
 public:
  explicit Access(const std::vector<Restriction>& restrictions);

  // What is missing for a request to a group, or nullptr.
  const Restriction* refusal(const Request& request, std::string_view group) const;

 private:
  std::map<std::string, std::pair<Restriction, std::string>, std::less<>> by_group_;  // and the header in lower case
};

}  // namespace pytriton::http
