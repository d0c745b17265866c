#include "predict_fields.h"

#include <algorithm>

#include "../vendor/simdjson/simdjson.h"

namespace pytriton::http {

namespace {

using List = simdjson::dom::array;
using Item = simdjson::dom::element;
using Schema = simdjson::dom::object;

constexpr const char* kSignature = "pytriton.signature";  // pytriton/signature/schema.py describes it
constexpr int64_t kVersion = 1;

std::string_view text_of(const Schema& schema, const char* name) {
  std::string_view text;
  return schema[name].get(text) ? std::string_view() : text;
}

bool has(const Schema& schema, const char* name) { return schema[name].error() == simdjson::SUCCESS; }

struct Kind {
  std::string_view type;
  TRITONSERVER_DataType dtype;
};
constexpr Kind kKinds[] = {
    {"integer", dtype::kInt64}, {"number", dtype::kFp64}, {"boolean", dtype::kBool}, {"string", dtype::kBytes}};

bool is_number(TRITONSERVER_DataType type) { return bytes_of(type) && type != dtype::kBf16; }

// False if there is such a keyword, and its value is no number.
bool read_limit(const Schema& schema, const char* name, std::optional<Constraints::Number>& limit) {
  const auto found = schema[name];
  int64_t integer = 0;
  uint64_t natural = 0;
  double number = 0;
  if (found.error()) return true;
  if (!found.get(integer)) {
    limit = integer;
  } else if (!found.get(natural)) {
    limit = natural;
  } else if (!found.get(number)) {
    limit = number;
  } else {
    return false;
  }
  return true;
}

bool read_length(const Schema& schema, const char* name, uint64_t& length) {
  const auto found = schema[name];
  return found.error() || !found.get(length);
}

bool read_members(const Schema& schema, std::vector<Constraints::Member>& members) {
  List listed;
  if (!has(schema, "enum")) return true;
  if (schema["enum"].get(listed)) return false;
  for (const Item each : listed) {
    switch (each.type()) {
      case simdjson::dom::element_type::BOOL:
        members.emplace_back(bool(each));
        break;
      case simdjson::dom::element_type::INT64:
        members.emplace_back(int64_t(each));
        break;
      case simdjson::dom::element_type::UINT64:
        members.emplace_back(uint64_t(each));
        break;
      case simdjson::dom::element_type::DOUBLE:
        members.emplace_back(double(each));
        break;
      case simdjson::dom::element_type::STRING:
        members.emplace_back(std::string(std::string_view(each)));
        break;
      default:
        return false;
    }
  }
  return !members.empty();
}

// Of an element. False if a keyword is not known here.
bool read_constraints(const Schema& schema, Constraints& to) {
  for (const char* name : {"const", "pattern", "multipleOf", "anyOf", "oneOf", "allOf", "$ref"})
    if (has(schema, name)) return false;
  if (!(read_limit(schema, "minimum", to.minimum) && read_limit(schema, "maximum", to.maximum) &&
        read_limit(schema, "exclusiveMinimum", to.above) && read_limit(schema, "exclusiveMaximum", to.below) &&
        read_length(schema, "minLength", to.min_length) && read_length(schema, "maxLength", to.max_length) &&
        read_members(schema, to.members)))
    return false;
  to.has_any = to.minimum || to.maximum || to.above || to.below || to.min_length || to.max_length != UINT64_MAX ||
               !to.members.empty();
  return true;
}

// The dtype and content of an element, which have to be those of the tensor.
bool read_element(const Schema& schema, Field& field) {
  const std::string_view type = text_of(schema, "type"), named = text_of(schema, "dtype");
  const auto* kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& each) { return each.type == type; });
  if (kind == std::end(kKinds)) return false;
  const auto wanted = named.empty() ? kind->dtype : TRITONSERVER_StringToDataType(std::string(named).c_str());
  if (wanted != field.dtype) return false;
  if (wanted == dtype::kBytes) {
    const bool is_base64 = text_of(schema, "contentEncoding") == "base64";
    if (!is_base64 && has(schema, "contentEncoding")) return false;
    field.content = is_base64 ? Field::Content::base64 : Field::Content::text;
    return true;
  }
  return is_number(wanted);
}

void read_array(Field& field) {
  field.form = Field::Form::array;
  field.content = field.dtype == dtype::kBytes ? Field::Content::text_or_base64 : Field::Content::number;
  field.is_single = field.dims.size() == 1 && field.dims[0] == 1;
}

// False if the values of an output cannot be written, or if the schema is not that of the tensor. An input whose values
// cannot be read only says so.
bool read_field(const Schema& schema, bool is_input, Field& field) {
  if (text_of(schema, "encoding") == "json") {
    field.form = Field::Form::json;
    field.is_readable = false;
    return field.dtype == dtype::kBytes;
  }
  List shape;
  if (!schema["shape"].get(shape)) {
    if (TRITONSERVER_StringToDataType(std::string(text_of(schema, "dtype")).c_str()) != field.dtype) return false;
    read_array(field);
    field.is_scalar = shape.size() == 0;
    field.is_single &= !field.is_scalar;
    if (field.is_scalar) return field.dims.size() <= 1;
    size_t axis = 0;
    for (const Item each : shape) {
      int64_t extent = 0;
      if (each.get(extent) || axis >= field.dims.size() || field.dims[axis++] != extent) return false;
    }
    return axis == field.dims.size();
  }
  Schema items;
  if (text_of(schema, "type") == "array") {
    field.form = Field::Form::list;
    if (schema["items"].get(items) || field.dims.size() != 1) return false;
    if (!read_element(items, field)) return false;
    if (is_input) {
      field.is_readable = read_constraints(items, field.constraints) &&
                          read_length(schema, "minItems", field.constraints.min_items) &&
                          read_length(schema, "maxItems", field.constraints.max_items) && !has(schema, "enum") &&
                          !has(schema, "anyOf") && !has(schema, "const");
    }
    return true;
  }
  field.form = Field::Form::value;
  if (!read_element(schema, field)) return false;
  if (is_input) field.is_readable = read_constraints(schema, field.constraints);
  return true;
}

std::optional<Field> field_of(const Tensor* tensor) {
  if (!tensor || !(is_number(tensor->dtype) || tensor->dtype == dtype::kBytes)) return std::nullopt;
  Field field;
  field.name = tensor->name;
  field.dtype = tensor->dtype;
  field.dims = tensor->dims;
  return field;
}

bool read_names(const Schema& from, std::vector<std::string_view>& names) {
  List listed;
  if (from["required"].get(listed)) return !has(from, "required");
  for (const Item each : listed) {
    std::string_view name;
    if (each.get(name)) return false;
    names.push_back(name);
  }
  return true;
}

// Inputs or outputs of a signature, in its order.
bool read_fields(const Schema& from, const Model& model, bool is_input, std::vector<Field>& fields) {
  Schema properties;
  std::vector<std::string_view> required;
  if (from["properties"].get(properties) || !read_names(from, required)) return false;
  for (const auto& [name, value] : properties) {
    Schema schema;
    auto field = field_of(is_input ? model.input(name) : model.output(name));
    if (!field || value.get(schema) || !read_field(schema, is_input, *field)) return false;
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    field->is_required = field->is_present = is_required;
    fields.push_back(std::move(*field));
  }
  return fields.size() == (is_input ? model.inputs : model.outputs).size();
}

bool is_of_any_size(const Field& field) {
  if (field.form == Field::Form::json) return false;
  return field.form == Field::Form::list || std::count(field.dims.begin(), field.dims.end(), -1) > 0;
}

bool read_signature(const std::string& text, Fields& fields) {
  simdjson::dom::parser parser;
  Schema signature, input, output;
  int64_t version = 0;
  if (parser.parse(text).get(signature) || signature["version"].get(version) || version > kVersion) return false;
  if (signature["input"].get(input) || signature["output"].get(output)) return false;
  const Model& model = *fields.model;
  fields.is_typed = true;
  if (!read_fields(input, model, true, fields.inputs) || !read_fields(output, model, false, fields.outputs))
    return false;
  // Outputs of another size for each row cannot be one array: such rows are requests of their own.
  const bool sizes_differ = text_of(signature, "passes") == "values" &&
                            std::any_of(fields.outputs.begin(), fields.outputs.end(), is_of_any_size);
  if (sizes_differ) fields.most_rows = 1;
  return true;
}

bool read_tensors(const std::vector<Tensor>& tensors, std::vector<Field>& fields) {
  for (const Tensor& tensor : tensors) {
    auto field = field_of(&tensor);
    if (!field) return false;
    read_array(*field);
    field->is_scalar = tensor.is_scalar;
    field->is_single &= !tensor.is_scalar;
    field->is_required = !tensor.optional;
    field->is_present = true;
    fields.push_back(std::move(*field));
  }
  return true;
}

}  // namespace

bool Constraints::allow_number(Number number) const {
  // A comparison with NaN is false.
  return (!minimum || number >= *minimum) && (!maximum || number <= *maximum) && (!above || number > *above) &&
         (!below || number < *below);
}

bool Constraints::allow_text(std::string_view text, bool is_utf8) const {
  const auto length = is_utf8 ? static_cast<uint64_t>(std::count_if(text.begin(), text.end(),
                                                                    [](char each) { return (each & 0xC0) != 0x80; }))
                              : text.size();
  if (length < min_length || length > max_length) return false;
  return members.empty() || std::any_of(members.begin(), members.end(), [&](const Member& member) {
           const auto* listed = std::get_if<std::string>(&member);
           return listed && *listed == text;
         });
}

const Field* Fields::input(std::string_view name) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Field& each) { return each.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

std::shared_ptr<const Fields> make_fields(std::shared_ptr<const Model> model) {
  auto fields = std::make_shared<Fields>();
  fields->model = std::move(model);
  const Model& of = *fields->model;
  fields->most_rows = std::max<int64_t>(of.max_batch_size, 1);
  const auto signature = of.parameters.find(kSignature);
  const bool is_known = signature == of.parameters.end()
                            ? read_tensors(of.inputs, fields->inputs) && read_tensors(of.outputs, fields->outputs)
                            : read_signature(signature->second, *fields);
  return is_known ? fields : nullptr;
}

}  // namespace pytriton::http
