// What requests say beside their tensors, as JSON; pytriton/proxy/details.py has the keys.
#pragma once

#include <string>
#include <vector>

#include "description.h"
#include "triton.h"

namespace pytriton {

struct Details {
  std::string metadata;  // empty if there are none
  bool apart = false;    // some want only a part of the outputs, or are traced
};

// Throws BadRequest for parameters that are no UTF-8, which the server takes from HTTP.
Details details_of(const std::vector<TRITONBACKEND_Request*>& requests, const Description& model);

}  // namespace pytriton
