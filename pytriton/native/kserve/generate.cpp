// POST /v2/models/{model}[/versions/{version}]/generate and generate_stream: an object with the inputs, and parameters,
// as its members becomes an object with the outputs, or a stream of them.
#include <algorithm>
#include <map>
#include <optional>

#include "../edge/answer_coding.h"
#include "../edge/background.h"
#include "../edge/error_response.h"
#include "../edge/route_options.h"
#include "../frames/json.h"
#include "forwarded_headers.h"
#include "infer.h"
#include "infer_answer.h"
#include "infer_request.h"
#include "json_elements.h"
#include "models.h"

namespace pytriton::http {

namespace {

using simdjson::ondemand::object;

// The extents of an input of so many elements: one of the model's that is variable, the first, has what the others
// leave.
std::vector<int64_t> shape_of(const Tensor& tensor, uint64_t count, bool has_batch_axis) {
  std::vector<int64_t> shape;
  if (has_batch_axis) shape.push_back(1);
  uint64_t known = 1;
  std::optional<size_t> variable;
  for (const int64_t extent : tensor.dims) {
    if (extent < 0 && !variable) variable = shape.size();
    shape.push_back(extent < 0 ? 1 : extent);
    if (extent >= 0 && __builtin_mul_overflow(known, static_cast<uint64_t>(extent), &known)) known = UINT64_MAX;
  }
  const bool fits = variable ? known != 0 && count % known == 0 : count == known;
  if (!fits) {
    throw Failure(Code::invalid_argument,
                  "The schema can not convert input '" + tensor.name + "' to tensor with proper shape");
  }
  if (variable) shape[*variable] = static_cast<int64_t>(count / known);
  return shape;
}

class GenerateReader {
 public:
  GenerateReader(const Model& model, std::string_view body, InferenceRequest& request)
      : model_(model), body_(body), levels_(route_options().max_nesting), request_(request) {}

  void read() {
    JsonParser parser;
    auto document = parser.parse(body_);
    for (auto each : members_of(document)) {
      auto field = checked(std::move(each));
      const std::string name(checked(field.unescaped_key()));
      if (const Tensor* tensor = model_.input(name)) {
        read_input(*tensor, field.value());
      } else if (name == "parameters") {
        read_parameters(field.value());
      } else {
        request_.parameters.push_back(read_parameter(name, field.value()));
        if (name == "id") read_id();
      }
    }
    check_end(document);
  }

 private:
  void read_input(const Tensor& tensor, JsonValue value) {
    Input& input = request_.inputs.emplace_back();
    input.name = tensor.name;
    input.dtype = tensor.dtype;
    if (input.dtype == dtype::kFp16 || input.dtype == dtype::kBf16) {
      throw Failure(Code::invalid_argument,
                    std::string("receiving ") + TRITONSERVER_DataTypeString(input.dtype) +
                        " data via JSON is not supported. Please use the binary data format for input " + input.name);
    }
    Elements elements = read_elements(value, input.dtype, kAnyCount, body_.size(), levels_);
    input.shape = shape_of(tensor, elements.count, model_.max_batch_size > 0);
    input.data = elements.data.get();
    input.size = elements.size;
    request_.storage.push_back(std::move(elements.data));
  }

  void read_parameters(JsonValue value) {
    object members;
    if (value.get_object().get(members)) {
      throw Failure(Code::invalid_argument,
                    "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object");
    }
    for (auto each : members) {
      auto field = checked(std::move(each));
      const std::string name(checked(field.unescaped_key()));
      request_.parameters.push_back(read_named(name, field.value()));
    }
  }

  // Triton says what it was converting for the members of `parameters` alone.
  static Parameter read_named(const std::string& name, JsonValue value) {
    try {
      return read_parameter(name, value);
    } catch (const Failure& failure) {
      throw Failure(failure.code, std::string("Converting keyword: 'parameters': ") + failure.what());
    }
  }

  // The id is a parameter, too, as with Triton.
  void read_id() {
    const Parameter& id = request_.parameters.back();
    if (id.type != TRITONSERVER_PARAMETER_STRING)
      throw Failure(Code::invalid_argument, "Unable to parse 'id': attempt to access JSON non-string as string");
    request_.id = id.text;
  }

  const Model& model_;
  std::string_view body_;
  unsigned levels_;
  InferenceRequest& request_;
};

std::string output_json(const Output& output) {
  std::string json;
  std::string_view data(output.data, output.size);
  uint64_t count = 1;
  for (uint64_t axis = 0; axis < output.rank; ++axis) count *= static_cast<uint64_t>(output.shape[axis]);
  if (count == 1) {
    append_element(json, output.dtype, data);
  } else {
    append_elements(json, output.dtype, output.data, output.size, count);
  }
  return json;
}

// A response as an object, whose members are sorted by name as in Triton's.
std::string response_json(const ModelResponse& response) {
  response.check_success();
  std::map<std::string, std::string, std::less<>> members;
  if (const std::string_view id = response.id(); !id.empty()) append_json(members["id"], id);
  append_json(members["model_name"], response.model());
  append_json(members["model_version"], std::to_string(response.version()));
  for (const Parameter& parameter : response.parameters()) append_value(members[parameter.name], parameter);
  const uint32_t count = response.output_count();
  for (uint32_t index = 0; index < count; ++index) {
    const Output output = response.output(index);
    members[std::string(output.name)] = output_json(output);
  }
  std::string json;
  for (const auto& [name, value] : members) {
    json += json.empty() ? '{' : ',';
    append_json(json, name);
    json += ':';
    json += value;
  }
  return json + '}';
}

// Answers with the only response, once it is known that there are no more.
class Generation final : public HttpInference {
 public:
  using HttpInference::HttpInference;

 private:
  void respond(ModelResponse response, bool final) override {
    if (response && !is_answered_) {
      if (++responses_ > 1) {
        fail(wrong_number(), final);
        cancel();
        return;
      }
      answer_.body = response_json(response);
    }
    if (!final || is_answered_) return;
    if (!responses_) return fail(wrong_number(), final);
    is_answered_ = true;
    send_as_accepted(exchange(), std::move(answer_));
  }

  void fail(const Failure& failure, bool /*final*/) override {
    if (is_answered_) return;
    is_answered_ = true;
    exchange().send(make_error(failure));
  }

  static Failure wrong_number() {
    return {Code::invalid_argument,
            "generate expects model to produce exactly 1 response, use generate stream for model that generates "
            "various number of responses"};
  }

  Response answer_;
  unsigned responses_ = 0;
  bool is_answered_ = false;
};

// Answers with an event for each response.
class GenerationStream final : public HttpInference {
 public:
  using HttpInference::HttpInference;

 private:
  void respond(ModelResponse response, bool final) override {
    if (response && !is_stopped_) {
      std::string event = "data: " + response_json(response) + "\n\n";
      begin(200);
      exchange().write(std::move(event));
      if (exchange().unsent() > kMostUnsent) stop();
    }
    if (final) end();
  }

  void fail(const Failure& failure, bool final) override {
    if (!is_stopped_) {
      const Response error = make_error(failure);
      begin(error.status);
      exchange().write("data: " + error.body + "\n\n");
    }
    if (final) end();
  }

  void refuse(const Failure& failure) override { exchange().send(make_error(failure)); }

  void begin(int status) {
    if (is_begun_) return;
    is_begun_ = true;
    Response head;
    head.status = status;
    head.content_type = "text/event-stream; charset=utf-8";
    exchange().begin(std::move(head));
  }

  void stop() {
    is_stopped_ = true;
    cancel();
    exchange().write("data: {\"error\":\"the stream was ended, as its events are not read\"}\n\n");
  }

  void end() {
    begin(200);
    exchange().end();
  }

  bool is_begun_ = false, is_stopped_ = false;
};

void send_request(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, bool is_stream,
                  const Fallback& fall_back) {
  const Request& http = exchange.request();
  // The configuration of a model that is being unloaded can be read; its inferences are refused.
  const auto model = models_of(server).find(target.model, target.version);
  InferenceRequest request;
  request.model = target.model;
  request.version = target.version;
  forward_headers(http, request);  // first, so that a member of its name wins
  GenerateReader(*model, http.body, request).read();
  if (is_left_to_server()) return fall_back();
  std::unique_ptr<Inference> inference;
  if (is_stream) {
    inference = std::make_unique<GenerationStream>(exchange);
  } else {
    inference = std::make_unique<Generation>(exchange);
  }
  infer(server, std::move(request), std::move(inference));
}

}  // namespace

void generate(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, bool is_stream,
              const Fallback& fall_back) {
  if (exchange.request().body.size() <= kLargeJson) {
    answer_failures(exchange, [&] { send_request(server, exchange, target, is_stream, fall_back); });
    return;
  }
  answer_in_background(exchange, exchange.request().body.size(),
                       [=](Exchange& to) { send_request(server, to, target, is_stream, fall_back); });
}

}  // namespace pytriton::http
