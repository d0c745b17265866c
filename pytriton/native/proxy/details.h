// What a request says beside its tensors, as JSON; pytriton/wire/README.md has the keys.
#pragma once

#include <string>
#include <vector>

#include "../frames/triton.h"
#include "model.h"

namespace pytriton {

struct Details {
  std::string fields;  // members of a JSON object; empty if there are none
  bool apart = false;  // it wants only a part of the outputs, or is traced
};

// With the reason why its batch left, if that is known, for its span. Throws BadRequest for parameters that are no
// UTF-8, which the server takes from HTTP.
Details details_of(TRITONBACKEND_Request* request, const Model& model, const char* reason);

// Adds the details of a request, by its number, to those of a batch.
void add_details(std::string& metadata, size_t number, const Details& details);

}  // namespace pytriton
