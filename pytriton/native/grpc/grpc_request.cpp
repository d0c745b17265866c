#include "grpc_request.h"

#include <charconv>
#include <cstring>

#include "../kserve/dtypes.h"
#include "../kserve/json_elements.h"
#include "proto.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostParameters = 1024, kMostTensors = 16384, kMostAxes = 1024;

enum class ValueKind { none, flag, integer, natural, text, number };

struct Value {
  ValueKind kind = ValueKind::none;
  Parameter parameter;
};

// An entry of a map of parameters.
Value read_value(std::string_view entry) {
  Value value;
  Parameter& parameter = value.parameter;
  std::string_view content;
  ProtoReader reader(entry);
  while (const unsigned field = reader.next()) {
    if (field == 1) {
      parameter.name = reader.text();
    } else if (field == 2) {
      content = reader.bytes();
    } else {
      reader.skip();
    }
  }
  ProtoReader of(content);
  while (const unsigned field = of.next()) {
    switch (field) {
      case 1:
        value.kind = ValueKind::flag;
        parameter.type = TRITONSERVER_PARAMETER_BOOL;
        parameter.flag = of.varint() != 0;
        break;
      case 2:
      case 5:
        value.kind = field == 2 ? ValueKind::integer : ValueKind::natural;
        parameter.type = TRITONSERVER_PARAMETER_INT;
        parameter.integer = static_cast<int64_t>(of.varint());
        break;
      case 3:
        value.kind = ValueKind::text;
        parameter.type = TRITONSERVER_PARAMETER_STRING;
        parameter.text = of.text();
        break;
      case 4:
        value.kind = ValueKind::number;
        parameter.type = TRITONSERVER_PARAMETER_DOUBLE;
        parameter.number = of.number();
        break;
      default:
        of.skip();
    }
  }
  return value;
}

void expect(const Value& value, ValueKind kind, const char* expected, const std::string& tensor = {}) {
  if (value.kind == kind) return;
  refuse("invalid value type for '" + value.parameter.name + "' parameter" +
         (tensor.empty() ? ", expected " : " for tensor '" + tensor + "', expected ") + expected);
}

// The parameters of a tensor that name a part of shared memory.
class PartReader {
 public:
  bool take(const Value& value, const std::string& tensor) {
    const std::string& name = value.parameter.name;
    if (name == "shared_memory_region") {
      expect(value, ValueKind::text, "string_param.", tensor);
      has_region_ = true;
      part_.name = value.parameter.text;
    } else if (name == "shared_memory_offset") {
      expect(value, ValueKind::integer, "int64_param.", tensor);
      has_offset_ = true;
      part_.offset = static_cast<uint64_t>(value.parameter.integer);
    } else if (name == "shared_memory_byte_size") {
      expect(value, ValueKind::integer, "int64_param.", tensor);
      has_size_ = true;
      part_.size = static_cast<uint64_t>(value.parameter.integer);
    } else {
      return false;
    }
    return true;
  }

  std::optional<RegionPart> part(const std::string& tensor) {
    const std::string of = "' parameter for tensor '" + tensor + "'";
    if (!has_region_) {
      for (const char* const each :
           {has_offset_ ? "shared_memory_offset" : "", has_size_ ? "shared_memory_byte_size" : ""})
        if (*each) refuse("'" + std::string(each) + "' can not be specified without 'shared_memory_region" + of);
      return std::nullopt;
    }
    if (!has_size_) refuse("'shared_memory_byte_size' must be specified along with 'shared_memory_region" + of);
    return std::move(part_);
  }

 private:
  RegionPart part_;
  bool has_region_ = false, has_offset_ = false, has_size_ = false;
};

template <typename Value>
void append(std::string& to, Value value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Appends elements of InferTensorContents, which has a list for each kind of them.
class Contents {
 public:
  Contents(const Input& input, const std::string& model) : input_(input), model_(model) {}

  std::string read(std::string_view contents) {
    ProtoReader reader(contents);
    while (const unsigned field = reader.next()) read_list(field, reader);
    return std::move(data_);
  }

 private:
  void read_list(unsigned field, ProtoReader& reader) {
    const TRITONSERVER_DataType type = input_.dtype;
    switch (field) {
      case 1:
        expect(type == dtype::kBool, dtype::kBool);
        return reader.varints([&](uint64_t value) { append<uint8_t>(data_, value != 0); });
      case 2:
        expect(type == dtype::kInt8 || type == dtype::kInt16 || type == dtype::kInt32, dtype::kInt32);
        return integers(reader);
      case 3:
        expect(type == dtype::kInt64, dtype::kInt64);
        return integers(reader);
      case 4:
        expect(type == dtype::kUint8 || type == dtype::kUint16 || type == dtype::kUint32, dtype::kUint32);
        return integers(reader);
      case 5:
        expect(type == dtype::kUint64, dtype::kUint64);
        return integers(reader);
      case 6:
        expect(type == dtype::kFp32, dtype::kFp32);
        return reader.fixed<uint32_t>([&](uint32_t value) { append(data_, value); });
      case 7:
        expect(type == dtype::kFp64, dtype::kFp64);
        return reader.fixed<uint64_t>([&](uint64_t value) { append(data_, value); });
      case 8: {
        expect(type == dtype::kBytes, dtype::kBytes);
        const std::string_view text = reader.bytes();
        append(data_, static_cast<uint32_t>(text.size()));
        data_ += text;
        return;
      }
      default:
        reader.skip();
    }
  }

  // In little endian, the first bytes of a number are those of a shorter one.
  void integers(ProtoReader& reader) {
    const size_t size = bytes_of(input_.dtype);
    reader.varints([&](uint64_t value) { data_.append(reinterpret_cast<const char*>(&value), size); });
  }

  void expect(bool fits, TRITONSERVER_DataType given) const {
    if (fits) return;
    refuse("unexpected explicit tensor data for input tensor '" + input_.name + "' for model '" + model_ +
           "' of type '" + TRITONSERVER_DataTypeString(given) + "', expected datatype '" +
           TRITONSERVER_DataTypeString(input_.dtype) + "'");
  }

  const Input& input_;
  const std::string& model_;
  std::string data_;
};

class RequestReader {
 public:
  RequestReader(GrpcRequest& to, const AdmitContents& admit) : to_(to), request_(to.request), admit_(admit) {}

  void read(std::string_view message) {
    // First of all: an answer to a wrong request has its id.
    ProtoReader reader(message);
    while (const unsigned field = reader.next()) {
      switch (field) {
        case 1:
          request_.model = reader.text();
          break;
        case 2:
          version_ = reader.text();
          break;
        case 3:
          request_.id = reader.text();
          break;
        case 4:
          parameters_.push_back(reader.bytes());
          break;
        case 5:
          inputs_.push_back(reader.bytes());
          break;
        case 6:
          outputs_.push_back(reader.bytes());
          break;
        case 7:
          raw_.push_back(reader.bytes());
          break;
        default:
          reader.skip();
      }
      if (parameters_.size() > kMostParameters || inputs_.size() > kMostTensors || outputs_.size() > kMostTensors ||
          raw_.size() > kMostTensors)
        refuse("the request has too many parameters or tensors");
    }
    request_.version = read_version(version_);
    for (const std::string_view each : parameters_) read_parameter(each);
    request_.inputs.reserve(inputs_.size());
    for (const std::string_view each : inputs_) read_input(each);
    if (next_raw_ < raw_.size())
      refuse("expected " + std::to_string(next_raw_) + " raw inputs, got " + std::to_string(raw_.size()));
    for (const std::string_view each : outputs_) read_output(each);
  }

 private:
  void read_parameter(std::string_view entry) {
    Value value = read_value(entry);
    Parameter& parameter = value.parameter;
    const std::string& name = parameter.name;
    if (name == "sequence_id") {
      if (value.kind == ValueKind::text) {
        request_.sequence_name = parameter.text;
      } else {
        expect(value, ValueKind::integer, "int64_param or string_param.");
        request_.sequence = static_cast<uint64_t>(parameter.integer);
      }
    } else if (name == "sequence_start") {
      expect(value, ValueKind::flag, "bool_param.");
      request_.sequence_start = parameter.flag;
    } else if (name == "sequence_end") {
      expect(value, ValueKind::flag, "bool_param.");
      request_.sequence_end = parameter.flag;
    } else if (name == "priority") {
      if (value.kind != ValueKind::natural) expect(value, ValueKind::integer, "uint64_param.");
      if (value.kind == ValueKind::integer && parameter.integer < 0) refuse("invalid value for 'priority' parameter");
      request_.priority = static_cast<uint64_t>(parameter.integer);
    } else if (name == "timeout") {
      if (value.kind != ValueKind::natural) expect(value, ValueKind::integer, "int64_param.");
      request_.timeout_us = static_cast<uint64_t>(parameter.integer);
    } else if (name == "triton_enable_empty_final_response") {
      expect(value, ValueKind::flag, "bool_param.");
      to_.wants_final = parameter.flag;
    } else if (name.compare(0, 7, "triton_") == 0) {
      refuse(
          "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
          "with 'triton_' are allowed: triton_enable_empty_final_response ");
    } else if (value.kind == ValueKind::none) {
      refuse("invalid value type for '" + name +
             "' parameter, expected int64_param, bool_param, string_param or "
             "double_param.");
    } else {
      request_.parameters.push_back(std::move(parameter));
    }
  }

  void read_input(std::string_view message) {
    Input& input = request_.inputs.emplace_back();
    std::string_view contents;
    bool has_contents = false;
    PartReader part;
    std::vector<Value> parameters;
    ProtoReader reader(message);
    while (const unsigned field = reader.next()) {
      switch (field) {
        case 1:
          input.name = reader.text();
          break;
        case 2:
          input.dtype = TRITONSERVER_StringToDataType(reader.text().c_str());
          break;
        case 3:
          reader.varints([&](uint64_t extent) {
            input.shape.push_back(static_cast<int64_t>(extent));
            if (input.shape.size() > kMostAxes) refuse("an input has too many dimensions");
          });
          break;
        case 4:
          parameters.push_back(read_value(reader.bytes()));
          if (parameters.size() > kMostParameters) refuse("an input has too many parameters");
          break;
        case 5:
          contents = reader.bytes();
          has_contents = true;
          break;
        default:
          reader.skip();
      }
    }
    if (input.dtype == TRITONSERVER_DataType{}) refuse("invalid datatype for input " + input.name);
    for (const Value& each : parameters) part.take(each, input.name);
    input.part = part.part(input.name);
    const uint64_t count = count_elements(input.shape, input.dtype, input.name);
    if (input.part) {
      if (has_contents) {
        refuse("unexpected 'content' provided when using shared memory for input tensor '" + input.name +
               "' for model '" + request_.model + "'");
      }
      request_.has_regions = true;
      return;
    }
    if (has_contents && !raw_.empty()) {
      refuse("contents field must not be specified when using raw_input_contents for '" + input.name + "' for model '" +
             request_.model + "'");
    }
    if (has_contents) {
      admit_(contents.size());
      take(Contents(input, request_.model).read(contents), input);
    } else if (next_raw_ < raw_.size()) {
      input.data = raw_[next_raw_].data();
      input.size = raw_[next_raw_++].size();
    } else if (!raw_.empty()) {
      refuse("expected tensor data for input tensor '" + input.name + "' for model '" + request_.model + "'");
    }
    const size_t item = bytes_of(input.dtype);
    if (item && input.size != count * item) {
      refuse("unexpected number of bytes " + std::to_string(input.size) + " for input '" + input.name +
             "', expecting " + std::to_string(count * item) + " for model '" + request_.model + "'");
    }
  }

  void take(const std::string& data, Input& input) {
    Memory memory = allocate(data.size());
    std::memcpy(memory.get(), data.data(), data.size());
    input.data = memory.get();
    input.size = data.size();
    request_.storage.push_back(std::move(memory));
  }

  void read_output(std::string_view message) {
    RequestedOutput& output = request_.outputs.emplace_back();
    PartReader part;
    std::vector<Value> parameters;
    ProtoReader reader(message);
    while (const unsigned field = reader.next()) {
      if (field == 1) {
        output.name = reader.text();
      } else if (field == 2) {
        parameters.push_back(read_value(reader.bytes()));
        if (parameters.size() > kMostParameters) refuse("an output has too many parameters");
      } else {
        reader.skip();
      }
    }
    bool has_classes = false;
    for (const Value& each : parameters) {
      if (part.take(each, output.name) || each.parameter.name != "classification") continue;
      if (each.kind != ValueKind::integer)
        refuse("invalid value type for 'classification' parameter, expected int64_param");
      if (each.parameter.integer < 0) refuse("invalid value for 'classification' parameter, expected >= 0");
      has_classes = true;
      output.classes = static_cast<uint32_t>(std::min<int64_t>(each.parameter.integer, UINT32_MAX));
    }
    output.part = part.part(output.name);
    if (output.part && has_classes) refuse("output can't set both 'shared_memory_region' and 'classification'");
    request_.has_regions |= output.part.has_value();
  }

  GrpcRequest& to_;
  InferenceRequest& request_;
  const AdmitContents& admit_;
  std::string version_;
  std::vector<std::string_view> parameters_, inputs_, outputs_, raw_;
  size_t next_raw_ = 0;
};

}  // namespace

int64_t read_version(const std::string& text) {
  if (text.empty()) return -1;
  int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size())
    refuse("failed to get model version from specified version string '" + text + "' (details: stoll)");
  return version;
}

void read_grpc_request(std::string_view message, const AdmitContents& admit, GrpcRequest& to) {
  RequestReader(to, admit).read(message);
}

}  // namespace pytriton::http
