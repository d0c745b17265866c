#include "infer_answer.h"

#include <algorithm>
#include <numeric>

#include "../frames/json.h"
#include "json_elements.h"
#include "shared_memory.h"

namespace pytriton::http {

namespace {

constexpr size_t kCopiedBytes = 16 << 10;  // of binary outputs: as long as a copy takes less time than another segment

// The data of binary outputs, in their order.
class BinaryData {
 public:
  void append(const Output& output) {
    size_ += output.size;
    if (memories_.empty() && text_.size() + output.size <= kCopiedBytes) {
      text_.append(output.data, output.size);
    } else if (output.size) {
      parts_.push_back({const_cast<char*>(output.data), output.size});
      memories_.emplace_back(ModelResponse::take(output));
    }
  }

  void append(std::string&& classes) {
    size_ += classes.size();
    if (memories_.empty()) {
      text_ += classes;
    } else {
      Memory memory = allocate(classes.size());
      std::copy(classes.begin(), classes.end(), memory.get());
      parts_.push_back({memory.get(), classes.size()});
      memories_.emplace_back(std::move(memory));
    }
  }

  // Appends them to an answer, whose body is JSON.
  void move_to(Response& answer, std::string_view binary_type) {
    if (!size_) return;
    const std::string json_size = std::to_string(answer.body.size());
    if (binary_type.empty()) {
      answer.content_type = "application/octet-stream";
      answer.headers = "Inference-Header-Content-Length: " + json_size + "\r\n";
    } else {
      answer.content_type = {};
      answer.headers.append("Content-Type: ").append(binary_type).append(json_size).append("\r\n");
    }
    answer.body += text_;
    if (memories_.empty()) return;
    answer.parts = std::move(parts_);
    answer.owner = std::make_shared<std::vector<std::shared_ptr<const char>>>(std::move(memories_));
  }

 private:
  size_t size_ = 0;
  std::string text_;
  std::vector<iovec> parts_;
  std::vector<std::shared_ptr<const char>> memories_;
};

void append_parameters(std::string& json, const std::vector<Parameter>& parameters) {
  if (parameters.empty()) return;
  json += R"(,"parameters":{)";
  for (const Parameter& parameter : parameters) {
    if (json.back() != '{') json += ',';
    append_json(json, parameter.name);
    json += ':';
    append_value(json, parameter);
  }
  json += '}';
}

void append_shape(std::string& json, const int64_t* shape, uint64_t rank) {
  json += ",\"shape\":[";
  for (uint64_t axis = 0; axis < rank; ++axis) {
    if (axis) json += ',';
    append_integer(json, shape[axis]);
  }
  json += ']';
}

void append_size(std::string& json, size_t size) {
  json += R"(,"parameters":{"binary_data_size":)";
  append_integer(json, uint64_t{size});
  json += '}';
}

uint64_t product(const int64_t* shape, uint64_t rank) {
  return std::accumulate(shape, shape + rank, uint64_t{1},
                         [](uint64_t count, int64_t extent) { return count * static_cast<uint64_t>(extent); });
}

void append_head(std::string& json, std::string_view name, TRITONSERVER_DataType type) {
  json += "{\"name\":";
  append_json(json, name);
  json += R"(,"datatype":")";
  json += TRITONSERVER_DataTypeString(type);
  json += '"';
}

void append_classes(std::string& json, BinaryData& binary, const ModelResponse& response, uint32_t index,
                    const Output& output, const RequestedOutput& wanted, bool has_batch_axis) {
  std::vector<int64_t> shape;
  std::string classes = classify(response, index, output, wanted.classes, has_batch_axis, shape);
  append_head(json, output.name, dtype::kBytes);
  append_shape(json, shape.data(), shape.size());
  if (wanted.binary) {
    append_size(json, classes.size());
    binary.append(std::move(classes));
  } else {
    json += ",\"data\":";
    append_elements(json, dtype::kBytes, classes.data(), classes.size(), product(shape.data(), shape.size()));
  }
  json += '}';
}

}  // namespace

const RequestedOutput* AnswerFormat::find(std::string_view name) const {
  const auto found =
      std::find_if(outputs.begin(), outputs.end(), [&](const RequestedOutput& each) { return each.name == name; });
  return found == outputs.end() ? nullptr : &*found;
}

void write_to_region(const Output& output, const RegionPart& part) {
  if (output.size > part.size) {
    throw Failure(Code::internal, "shared memory size specified with the request for output '" +
                                      std::string(output.name) + "' (" + std::to_string(part.size) +
                                      " bytes) should be at least " + std::to_string(output.size) +
                                      " bytes to hold the results");
  }
  part.region->write(part.offset, output.data, output.size);
}

void append_value(std::string& json, const Parameter& parameter) {
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_INT:
      return append_integer(json, parameter.integer);
    case TRITONSERVER_PARAMETER_BOOL:
      json += parameter.flag ? "true" : "false";
      return;
    case TRITONSERVER_PARAMETER_DOUBLE:
      return append_number(json, parameter.number);
    default:
      return append_json(json, is_utf8(parameter.text) ? parameter.text : "");
  }
}

Response make_answer(const ModelResponse& response, const AnswerFormat& format) {
  response.check_success();
  Response answer;
  std::string& json = answer.body;
  BinaryData binary;
  json.reserve(512);
  json += '{';
  if (const std::string_view id = response.id(); !id.empty()) {
    json += "\"id\":";
    append_json(json, id);
    json += ',';
  }
  json += "\"model_name\":";
  append_json(json, response.model());
  json += R"(,"model_version":")";
  append_integer(json, response.version());
  json += '"';
  append_parameters(json, response.parameters());
  json += ",\"outputs\":[";
  const uint32_t count = response.output_count();
  for (uint32_t index = 0; index < count; ++index) {
    const Output output = response.output(index);
    const RequestedOutput* wanted = format.find(output.name);
    if (index) json += ',';
    if (wanted && wanted->classes) {
      append_classes(json, binary, response, index, output, *wanted, format.has_batch_axis);
      continue;
    }
    append_head(json, output.name, output.dtype);
    append_shape(json, output.shape, output.rank);
    if (wanted && wanted->part) {
      write_to_region(output, *wanted->part);
    } else if (wanted ? wanted->binary : format.is_binary) {
      append_size(json, output.size);
      binary.append(output);
    } else {
      json += ",\"data\":";
      append_elements(json, output.dtype, output.data, output.size, product(output.shape, output.rank));
    }
    json += '}';
  }
  json += "]}";
  binary.move_to(answer, format.binary_type);
  return answer;
}

}  // namespace pytriton::http
