// Requests that a browser sends for a page that may not call: one of another origin, or one whose host's name leads to
// this machine although it is none of its names (DNS rebinding). What other clients send has no Origin.
#pragma once

#include <string>
#include <vector>

#include "exchange.h"

namespace pytriton::http {

class Sites {
 public:
  // `hosts`: names of this machine beside its addresses and localhost. `origins`: whose pages may call. Each may be
  // "*". `checks_hosts`: whether a page of the same origin needs a name that is known.
  Sites(const std::vector<std::string>& hosts, std::vector<std::string> origins, bool checks_hosts);

  bool may_call(const Request& request) const;

  // Whether the name in a request's Host is one that this machine has, where that is to be checked.
  bool knows_host(const Request& request) const;

 private:
  std::vector<std::string> hosts_, origins_;  // hosts: in lower case
  bool checks_hosts_;
};

}  // namespace pytriton::http
