#include "infer_request.h"

#include <optional>

namespace pytriton::http {

namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;

[[noreturn]] void fail(const std::string& message) { throw Failure(Code::invalid_argument, message); }

[[noreturn]] void fail_member(std::string_view member, const char* reason) {
  fail("Unable to parse '" + std::string(member) + "': " + reason);
}

[[noreturn]] void fail_absent(const char* member) {
  fail_member(member, ("attempt to access non-existing object member '" + std::string(member) + "'").c_str());
}

array read_list(JsonValue value, const char* member) {
  array list;
  if (value.get_array().get(list)) fail_member(member, "attempt to access JSON non-array as array");
  return list;
}

uint64_t read_unsigned(JsonValue value, const char* member) {
  uint64_t number = 0;
  if (value.get_uint64().get(number))
    fail_member(member, "attempt to access JSON non-unsigned-integer as unsigned-integer");
  return number;
}

bool read_flag(JsonValue value, const char* member) {
  bool flag = false;
  if (value.get_bool().get(flag)) fail_member(member, "attempt to access JSON non-boolean as boolean");
  return flag;
}

// The members of an object that it has already had; a second one of a name is left out, as Triton does.
class Seen {
 public:
  bool operator()(unsigned member) {
    const bool was = members_ & 1U << member;
    members_ |= 1U << member;
    return was;
  }

 private:
  unsigned members_ = 0;
};

class Reader {
 public:
  Reader(std::string_view body, size_t head_size, unsigned levels, InferenceRequest& request)
      : head_(body.substr(0, head_size)), binary_(body.substr(head_size)), levels_(levels), request_(request) {}

  void read() {
    JsonParser parser;
    auto document = parser.parse(head_);
    object members;
    if (const auto error = document.get_object().get(members)) {
      if (error != simdjson::INCORRECT_TYPE) fail_syntax(error);
      fail_absent("inputs");
    }
    bool has_inputs = false;
    Seen seen;
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "inputs" && !seen(0)) {
        has_inputs = true;
        for (auto input : read_list(field.value(), "inputs")) read_input(checked<JsonValue>(input));
      } else if (key == "outputs" && !seen(1)) {
        for (auto output : read_list(field.value(), "outputs")) read_output(checked<JsonValue>(output));
      } else if (key == "parameters" && !seen(2)) {
        read_parameters(field.value());
      } else if (key == "id" && !seen(3)) {
        request_.id = read_text(field.value(), "id");
      } else {
        skip(field.value(), levels_);
      }
    }
    check_end(document);
    if (!has_inputs) fail_absent("inputs");
    if (!binary_.empty()) fail("unexpected additional input data for model '" + request_.model + "'");
    if (request_.outputs.empty()) request_.is_binary = is_binary_;
  }

 private:
  struct Source {
    std::optional<uint64_t> binary_size;
    RegionPart part;
    bool has_region = false;
  };

  void read_input(JsonValue value) {
    object members;
    if (value.get_object().get(members)) fail_source("But no field is set");
    Input& input = request_.inputs.emplace_back();
    Source source;
    bool has_name = false, has_dtype = false, has_shape = false, has_data = false, is_read = false;
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "name" && !has_name) {
        has_name = true;
        input.name = read_text(field.value(), "name");
      } else if (key == "datatype" && !has_dtype) {
        has_dtype = true;
        input.dtype = TRITONSERVER_StringToDataType(std::string(read_text(field.value(), "datatype")).c_str());
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        read_shape(field.value(), input);
      } else if (key == "parameters") {
        read_source(field.value(), source);
      } else if (key == "data" && !has_data) {
        has_data = true;
        is_read = has_name && has_dtype && has_shape;
        if (is_read) read_data(field.value(), input);
      } else {
        skip(field.value(), levels_);
      }
    }
    check_source(source, has_data);
    if (!has_name) fail_absent("name");
    if (!has_dtype) fail_absent("datatype");
    if (!has_shape) fail_absent("shape");
    if (source.has_region) {
      check_dtype(input);
      input.part = std::move(source.part);
      request_.has_regions = true;
      return;
    }
    if (source.binary_size) return take_binary(*source.binary_size, input);
    if (is_read) return;
    // The data came before what they are. No text may be unescaped twice, which has to do for names, too.
    if (const auto error = members.reset().error()) fail_syntax(error);
    for (auto each : members) {
      auto field = checked(std::move(each));
      if (!is_read && field.key() == "data") {
        is_read = true;
        read_data(field.value(), input);
      }
    }
    if (!is_read) fail_absent("data");
  }

  static void read_shape(JsonValue value, Input& input) {
    for (auto each : read_list(value, "shape")) {
      const uint64_t extent = read_unsigned(checked<JsonValue>(each), "shape");
      input.shape.push_back(extent > INT64_MAX ? -1 : static_cast<int64_t>(extent));  // which is refused
    }
  }

  // Where the data are; other parameters of inputs are ignored, as by Triton.
  void read_source(JsonValue value, Source& source) const {
    object members;
    if (value.get_object().get(members)) return skip(value, levels_);
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "binary_data_size") {
        source.binary_size = read_unsigned(field.value(), "binary_data_size");
      } else if (is_of_region(key)) {
        source.has_region |= read_part(key, field.value(), source.part);
      } else {
        skip(field.value(), levels_);
      }
    }
  }

  static bool is_of_region(std::string_view key) {
    return key == "shared_memory_region" || key == "shared_memory_byte_size" || key == "shared_memory_offset";
  }

  // Whether it names the region: without its name, the others mean nothing.
  static bool read_part(std::string_view key, JsonValue value, RegionPart& part) {
    if (key == "shared_memory_byte_size") {
      part.size = read_unsigned(value, "shared_memory_byte_size");
    } else if (key == "shared_memory_offset") {
      part.offset = read_unsigned(value, "shared_memory_offset");
    } else {
      part.name = read_text(value, "shared_memory_region");
      return true;
    }
    return false;
  }

  static void check_source(const Source& source, bool has_data) {
    if (has_data + source.binary_size.has_value() + source.has_region == 1) return;
    std::string set;
    if (has_data) set += " 'data'";
    if (source.binary_size) set += " 'binary_data_size'";
    if (source.has_region) set += " 'shared_memory_region'";
    fail_source(set.empty() ? "But no field is set" : "But set" + set);
  }

  [[noreturn]] static void fail_source(const std::string& reason) {
    fail(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        "'shared_memory_region' in 'parameters'. " +
        reason);
  }

  void read_data(JsonValue value, Input& input) {
    check_dtype(input);
    if (input.dtype == dtype::kFp16 || input.dtype == dtype::kBf16) {
      fail(std::string("receiving ") + TRITONSERVER_DataTypeString(input.dtype) +
           " data via JSON is not supported. Please use the binary data format for input " + input.name);
    }
    if (checked(value.type()) != json_type::array) fail_member("data", "attempt to access JSON non-array as array");
    const uint64_t count = count_elements(input.shape, input.dtype, input.name);
    Elements elements = read_elements(value, input.dtype, count, head_.size(), levels_);
    input.data = elements.data.get();
    input.size = elements.size;
    request_.storage.push_back(std::move(elements.data));
  }

  void take_binary(uint64_t size, Input& input) {
    check_dtype(input);
    if (size > binary_.size()) {
      fail("unexpected size for input '" + input.name + "', expecting " + std::to_string(size - binary_.size()) +
           " additional bytes for model '" + request_.model + "'");
    }
    const uint64_t count = count_elements(input.shape, input.dtype, input.name);
    const size_t item = bytes_of(input.dtype);
    if (item && size != count * item) {
      fail("input byte size mismatch for input '" + input.name + "' for model '" + request_.model + "'. Expected " +
           std::to_string(count * item) + ", got " + std::to_string(size));
    }
    input.data = binary_.data();
    input.size = size;
    binary_.remove_prefix(size);
  }

  static void check_dtype(const Input& input) {
    if (input.dtype == TRITONSERVER_DataType{}) fail("invalid datatype for input " + input.name);
  }

  void read_output(JsonValue value) {
    object members;
    if (value.get_object().get(members)) fail_absent("name");
    RequestedOutput& output = request_.outputs.emplace_back();
    OutputSource source;
    bool has_name = false;
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "name" && !has_name) {
        has_name = true;
        output.name = read_text(field.value(), "name");
      } else if (key == "parameters") {
        read_output_parameters(field.value(), output, source);
      } else {
        skip(field.value(), levels_);
      }
    }
    if (!has_name) fail_absent("name");
    if (!source.has_region) return;
    if (source.has_classes) fail("Output can't set both 'shared_memory_region' and 'classification'");
    if (output.binary) fail("Output can't set both 'shared_memory_region' and 'binary_data'");
    output.part = std::move(source.part);
    request_.has_regions = true;
  }

  struct OutputSource {
    RegionPart part;
    bool has_region = false, has_classes = false;
  };

  void read_output_parameters(JsonValue value, RequestedOutput& output, OutputSource& source) const {
    object members;
    if (value.get_object().get(members)) return skip(value, levels_);
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "binary_data") {
        output.binary = read_flag(field.value(), "binary_data");
      } else if (key == "classification") {
        source.has_classes = true;
        const uint64_t classes = read_unsigned(field.value(), "classification");
        output.classes = classes < UINT32_MAX ? static_cast<uint32_t>(classes) : UINT32_MAX;
      } else if (is_of_region(key)) {
        source.has_region |= read_part(key, field.value(), source.part);
      } else {
        skip(field.value(), levels_);
      }
    }
  }

  void read_parameters(JsonValue value) {
    object members;
    if (value.get_object().get(members)) fail("failed to get request params.: attempt to get members for non-object");
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string_view key = checked(field.unescaped_key());
      if (key == "sequence_id") {
        read_sequence(field.value());
      } else if (key == "sequence_start") {
        request_.sequence_start = read_flag(field.value(), "sequence_start");
      } else if (key == "sequence_end") {
        request_.sequence_end = read_flag(field.value(), "sequence_end");
      } else if (key == "priority") {
        request_.priority = read_unsigned(field.value(), "priority");
      } else if (key == "timeout") {
        request_.timeout_us = read_unsigned(field.value(), "timeout");
      } else if (key == "binary_data_output") {
        is_binary_ = read_flag(field.value(), "binary_data_output");
      } else {
        if (key.substr(0, 7) == "triton_")
          fail("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
        request_.parameters.push_back(read_parameter(key, field.value()));
      }
    }
  }

  void read_sequence(JsonValue value) {
    if (value.get_uint64().get(request_.sequence) == simdjson::SUCCESS) return;
    request_.sequence = 0;
    request_.sequence_name = read_text(value, "sequence_id");
  }

  std::string_view head_, binary_;
  unsigned levels_;
  InferenceRequest& request_;
  bool is_binary_ = false;
};

}  // namespace

std::string_view read_text(JsonValue value, std::string_view member) {
  std::string_view text;
  if (value.get_string().get(text)) fail_member(member, "attempt to access JSON non-string as string");
  if (text.find('\0') != std::string_view::npos) fail_member(member, "the text has a NUL character");
  return text;
}

Parameter read_parameter(std::string_view name, JsonValue value) {
  if (name.find('\0') != std::string_view::npos) fail("the name of a parameter has a NUL character");
  Parameter parameter;
  parameter.name = name;
  switch (checked(value.type())) {
    case json_type::string:
      parameter.type = TRITONSERVER_PARAMETER_STRING;
      parameter.text = read_text(value, name);
      break;
    case json_type::boolean:
      parameter.type = TRITONSERVER_PARAMETER_BOOL;
      parameter.flag = checked(value.get_bool());
      break;
    case json_type::number:
      if (value.get_int64().get(parameter.integer) == simdjson::SUCCESS) {
        parameter.type = TRITONSERVER_PARAMETER_INT;
      } else {
        parameter.type = TRITONSERVER_PARAMETER_DOUBLE;
        parameter.number = checked(value.get_double());
      }
      break;
    default:
      fail("parameter '" + std::string(name) + "' has invalid type. It should be either 'int', 'bool', or 'string'.");
  }
  return parameter;
}

void read_infer_request(std::string_view body, size_t head_size, unsigned levels, InferenceRequest& request) {
  if (head_size) return Reader(body, head_size, levels, request).read();
  Input& input = request.inputs.emplace_back();
  input.name = "raw_input";
  input.data = body.data();
  input.size = body.size();
  request.is_raw = request.is_binary = true;
}

}  // namespace pytriton::http
