#include "grpc_answer.h"

#include "../kserve/dtypes.h"
#include "proto.h"

namespace pytriton::http {

namespace {

constexpr unsigned kModel = 1, kVersion = 2, kId = 3, kParameters = 4, kOutputs = 5, kRaw = 6;  // of the response
constexpr unsigned kError = 1, kResponse = 2;                                                   // of a stream's

void append_parameter(std::string& to, const Parameter& parameter) {
  std::string value, entry;
  ProtoWriter of(value), writer(entry);
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_BOOL:
      of.flag(1, parameter.flag);
      break;
    case TRITONSERVER_PARAMETER_INT:
      of.varint(2, static_cast<uint64_t>(parameter.integer));
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      of.number(4, parameter.number);
      break;
    default:
      of.bytes(3, parameter.text);
  }
  writer.bytes(1, parameter.name);
  writer.bytes(2, value);
  ProtoWriter(to).bytes(kParameters, entry);
}

void append_final(std::string& to, bool is_final) {
  Parameter parameter;
  parameter.name = "triton_final_response";
  parameter.type = TRITONSERVER_PARAMETER_BOOL;
  parameter.flag = is_final;
  append_parameter(to, parameter);
}

// A response without outputs.
void append_empty(std::string& to, std::string_view model, std::string_view id, bool is_final) {
  ProtoWriter writer(to);
  writer.bytes(kModel, model);
  if (!id.empty()) writer.bytes(kId, id);
  append_final(to, is_final);
}

void append_output(std::string& to, std::string_view name, TRITONSERVER_DataType type, const int64_t* shape,
                   uint64_t rank) {
  std::string text, extents;
  ProtoWriter writer(text), packed(extents);
  writer.bytes(1, name);
  writer.bytes(2, TRITONSERVER_DataTypeString(type));
  for (uint64_t axis = 0; axis < rank; ++axis) packed.raw_varint(static_cast<uint64_t>(shape[axis]));
  if (!extents.empty()) writer.bytes(3, extents);
  ProtoWriter(to).bytes(kOutputs, text);
}

}  // namespace

MessagePointer make_message(const ModelResponse& response, const AnswerFormat& format, const bool* is_final) {
  response.check_success();
  auto message = std::make_shared<GrpcMessage>();
  std::string& to = message->text;
  ProtoWriter writer(to);
  writer.bytes(kModel, response.model());
  writer.bytes(kVersion, std::to_string(response.version()));
  if (const std::string_view id = response.id(); !id.empty()) writer.bytes(kId, id);
  for (const Parameter& each : response.parameters()) append_parameter(to, each);
  if (is_final) append_final(to, *is_final);
  const uint32_t count = response.output_count();
  struct Raw {
    Output output;
    std::string classes;
    bool is_elsewhere = false;  // in shared memory
  };
  std::vector<Raw> raws(count);
  for (uint32_t index = 0; index < count; ++index) {
    Raw& raw = raws[index];
    raw.output = response.output(index);
    const RequestedOutput* const wanted = format.find(raw.output.name);
    if (wanted && wanted->classes) {
      std::vector<int64_t> shape;
      raw.classes = classify(response, index, raw.output, wanted->classes, format.has_batch_axis, shape);
      raw.is_elsewhere = true;
      append_output(to, raw.output.name, dtype::kBytes, shape.data(), shape.size());
      continue;
    }
    if (wanted && wanted->part) {
      write_to_region(raw.output, *wanted->part);
      raw.is_elsewhere = true;
    }
    append_output(to, raw.output.name, raw.output.dtype, raw.output.shape, raw.output.rank);
  }
  for (Raw& raw : raws) {
    if (raw.is_elsewhere) {
      writer.bytes(kRaw, raw.classes);
    } else if (raw.output.size <= kCopiedPart) {
      writer.bytes(kRaw, {raw.output.data, raw.output.size});
    } else {
      writer.size(kRaw, raw.output.size);
      message->insert({raw.output.data, raw.output.size}, ModelResponse::take(raw.output));
    }
  }
  message->finish(is_final ? kResponse : 0);
  return message;
}

MessagePointer make_final_message(std::string_view model, std::string_view id) {
  auto message = std::make_shared<GrpcMessage>();
  append_empty(message->text, model, id, true);
  message->finish(kResponse);
  return message;
}

MessagePointer make_failed_message(std::string_view error, std::string_view model, std::string_view id, bool is_final) {
  std::string text, response;
  append_empty(response, model, id, is_final);
  ProtoWriter writer(text);
  writer.bytes(kError, error);
  writer.bytes(kResponse, response);
  return message_of(std::move(text));
}

MessagePointer make_error_message(std::string_view error, std::string_view id) {
  std::string text, response;
  ProtoWriter writer(text);
  writer.bytes(kError, error);
  if (!id.empty()) ProtoWriter(response).bytes(kId, id);
  writer.bytes(kResponse, response);
  return message_of(std::move(text));
}

}  // namespace pytriton::http
