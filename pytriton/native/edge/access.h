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

class Access {
 public:
  explicit Access(const std::vector<Restriction>& restrictions);

  // What is missing for a request to a group, or nullptr. One of several restrictions of a group has to be met.
  const Restriction* refusal(const Request& request, std::string_view group) const;

 private:
  std::map<std::string, std::vector<std::pair<Restriction, std::string>>, std::less<>> by_group_;  // header: lower case
};

}  // namespace pytriton::http
