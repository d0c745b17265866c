// How the members of /predict's JSON become a model's tensors, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dtypes.h"
#include "models.h"

namespace pytriton::http {

// What values of an input may be, beside its dtype. The numbers are exact: they have 64 bits or more.
struct Constraints {
  using Number = long double;
  using Member = std::variant<bool, int64_t, uint64_t, double, std::string>;

  std::optional<Number> minimum, maximum, above, below;
  uint64_t min_length = 0, max_length = UINT64_MAX;  // of a text in code points, of bytes
  uint64_t min_items = 0, max_items = UINT64_MAX;    // of a list
  std::vector<Member> members;                       // of an enumeration; empty: all
  bool has_any = false;                              // of those of an element

  bool allow_number(Number number) const;
  bool allow_text(std::string_view text, bool is_utf8) const;
};

// An input or output. Its tensor is that of the model without the batch axis.
struct Field {
  enum class Form {
    array,  // nested lists, as deep as there are dims
    value,  // one element
    list,   // a list of elements, of any length
    json,   // any JSON, which is a text in the tensor
  };
  enum class Content {
    number,          // or true and false
    text,            // UTF-8
    base64,          // bytes
    text_or_base64,  // "..." or {"b64": "..."}
  };

  std::string name;
  TRITONSERVER_DataType dtype{};
  std::vector<int64_t> dims;
  Form form = Form::array;
  Content content = Content::number;
  Constraints constraints;
  bool is_required = false;  // of an input
  bool is_present = false;   // an output that is null in JSON if there is none
  bool is_readable = true;   // an input whose values can be read here
  bool is_single = false;    // an array of one element, which may be sent without its list
  bool is_scalar = false;    // an array without dims, which has no list at all
};

struct Fields {
  std::shared_ptr<const Model> model;
  bool is_typed = false;  // made of a function's annotations
  int64_t most_rows = 1;  // of one request to the model
  std::vector<Field> inputs, outputs;

  const Field* input(std::string_view name) const;
};

// The fields of a model: those of its typed function, or one for each of its tensors. nullptr if they are not known
// here.
std::shared_ptr<const Fields> make_fields(std::shared_ptr<const Model> model);

}  // namespace pytriton::http
