#include "signature.h"

#include <algorithm>

#include "../frames/failure.h"
#include "../frames/json.h"

namespace pytriton::http {

namespace {

constexpr const char* kSignature = "pytriton.signature";  // pytriton/signature/schema.py describes it
constexpr int64_t kVersion = 1;

struct Kind {
  std::string_view type;
  TRITONSERVER_DataType dtype;
};
constexpr Kind kKinds[] = {
    {"integer", dtype::kInt64}, {"number", dtype::kFp64}, {"boolean", dtype::kBool}, {"string", dtype::kBytes}};

// What limits values beside their dtype: the application checks it.
constexpr const char* kConstraints[] = {"minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "minLength",
                                        "maxLength",
                                        "minItems",
                                        "maxItems",
                                        "pattern",
                                        "enum",
                                        "const",
                                        "anyOf",
                                        "oneOf",
                                        "allOf",
                                        "$ref"};

// A member that is a text; empty if there is none.
std::string text_of(const Json& schema, std::string_view name) {
  const Json* const found = schema.find(name);
  return found && found->is(Json::Kind::text) ? found->text() : std::string();
}

bool has_constraints(const Json& schema) {
  return std::any_of(std::begin(kConstraints), std::end(kConstraints),
                     [&](const char* name) { return schema.find(name); });
}

TRITONSERVER_DataType dtype_of(const std::string& name) { return TRITONSERVER_StringToDataType(name.c_str()); }

// Whether a schema is that of an element of a field.
bool is_element(const Json& schema, const Field& field) {
  const std::string type = text_of(schema, "type"), named = text_of(schema, "dtype");
  const auto* kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& each) { return each.type == type; });
  if (kind == std::end(kKinds) || schema.find("contentEncoding")) return false;
  return (named.empty() ? kind->dtype : dtype_of(named)) == field.dtype;
}

void read_array(Field& field, bool is_scalar) {
  field.form = Field::Form::array;
  field.is_scalar = is_scalar;
  field.is_single = !is_scalar && field.dims.size() == 1 && field.dims[0] == 1;
}

// False if the values of a schema are none of those that are read and written here.
bool read_field(const Json& schema, Field& field) {
  if (schema.find("encoding")) return false;
  if (const Json* const shape = schema.find("shape")) {
    const std::vector<Json>& extents = shape->list();
    read_array(field, extents.empty());
    if (dtype_of(text_of(schema, "dtype")) != field.dtype) return false;
    if (field.is_scalar) return field.dims.size() <= 1;
    return std::equal(field.dims.begin(), field.dims.end(), extents.begin(), extents.end(),
                      [](int64_t extent, const Json& wanted) { return wanted.integer() == extent; });
  }
  field.is_text = true;
  const Json* const items = schema.find("items");
  if (!items || text_of(schema, "type") != "array") {
    field.form = Field::Form::value;
    return is_element(schema, field);
  }
  field.form = Field::Form::list;
  return field.dims.size() == 1 && is_element(*items, field);
}

// Whether elements of a dtype are read and written here; numbers of 16 bits that are no integers are not.
bool is_known(TRITONSERVER_DataType type) {
  return type == dtype::kBytes || visit_dtype(type, [](auto /*item*/) {});
}

Field field_of(const Tensor& tensor) {
  Field field;
  field.name = tensor.name;
  field.dtype = tensor.dtype;
  field.dims = tensor.dims;
  field.is_readable = is_known(tensor.dtype);
  return field;
}

// Inputs or outputs of a signature, in the order of the model, which is that of the signature.
bool read_fields(const Json& from, const std::vector<Tensor>& tensors, bool is_input, std::vector<Field>& fields) {
  const Json& properties = from["properties"];
  const Json* const required = from.find("required");
  for (const Tensor& tensor : tensors) {
    const Json* const schema = properties.find(tensor.name);
    if (!schema) return false;
    Field& field = fields.emplace_back(field_of(tensor));
    field.is_readable = field.is_readable && read_field(*schema, field);
    if (!is_input && !field.is_readable) return false;
    const Json* const items = schema->find("items");
    field.is_readable &= !has_constraints(*schema) && (!items || !has_constraints(*items));
    field.is_required = required && std::any_of(required->list().begin(), required->list().end(),
                                                [&](const Json& name) { return name.text() == tensor.name; });
  }
  return fields.size() == properties.object().size();
}

bool is_of_any_size(const Field& field) {
  return field.form == Field::Form::list || std::count(field.dims.begin(), field.dims.end(), -1) > 0;
}

bool read_signature(const std::string& text, Signature& to) try {
  const Json signature = Json::parse(text);
  if (signature["version"].integer() > kVersion) return false;
  to.is_typed = true;
  if (!read_fields(signature["input"], to.model->inputs, true, to.inputs) ||
      !read_fields(signature["output"], to.model->outputs, false, to.outputs))
    return false;
  // Outputs of another size for each row cannot be one array: such rows are requests of their own.
  const bool sizes_differ =
      text_of(signature, "passes") == "values" && std::any_of(to.outputs.begin(), to.outputs.end(), is_of_any_size);
  if (sizes_differ) to.most_rows = 1;
  return true;
} catch (const FrameError&) {  // it is of a kind that only the application knows
  return false;
}

bool read_tensors(const std::vector<Tensor>& tensors, bool is_input, std::vector<Field>& fields) {
  for (const Tensor& tensor : tensors) {
    Field& field = fields.emplace_back(field_of(tensor));
    if (!is_input && !field.is_readable) return false;
    read_array(field, tensor.is_scalar);
    field.is_required = !tensor.optional;
  }
  return true;
}

}  // namespace

const Field* Signature::input(std::string_view name) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Field& each) { return each.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

std::shared_ptr<const Signature> make_signature(std::shared_ptr<const Model> model) {
  auto signature = std::make_shared<Signature>();
  signature->model = std::move(model);
  const Model& of = *signature->model;
  signature->most_rows = std::max<int64_t>(of.max_batch_size, 1);
  const auto found = of.parameters.find(kSignature);
  const bool is_known = found == of.parameters.end() ? read_tensors(of.inputs, true, signature->inputs) &&
                                                           read_tensors(of.outputs, false, signature->outputs)
                                                     : read_signature(found->second, *signature);
  return is_known ? signature : nullptr;
}

}  // namespace pytriton::http
