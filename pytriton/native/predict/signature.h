// How the members of /predict's JSON become a model's tensors, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../kserve/dtypes.h"
#include "../kserve/models.h"

namespace pytriton::http {

// An input or output. Its tensor is that of the model without the batch axis.
struct Field {
  enum class Form {
    array,  // nested lists, as deep as there are dims
    value,  // one element
    list,   // a list of elements, of any length
  };

  std::string name;
  TRITONSERVER_DataType dtype{};
  std::vector<int64_t> dims;
  Form form = Form::array;
  bool is_text = false;      // strings are text in UTF-8; else other bytes become {"b64": "..."}
  bool is_required = false;  // of an input
  bool is_readable = true;   // an input whose values can be read here
  bool is_single = false;    // an array of one element, which may be sent without its list
  bool is_scalar = false;    // an array without dims, which has no list at all
};

struct Signature {
  std::shared_ptr<const Model> model;
  bool is_typed = false;  // made of a function's annotations
  int64_t most_rows = 1;  // of one request to the model
  std::vector<Field> inputs, outputs;

  const Field* input(std::string_view name) const;
};

// That of a typed function, or one with a field for each of the model's tensors. nullptr for a model with outputs that
// are numbers, booleans and texts neither, nor lists of them: the application knows all others, and what inputs may be.
std::shared_ptr<const Signature> make_signature(std::shared_ptr<const Model> model);

}  // namespace pytriton::http
