// POST /v2/models/{model}[/versions/{version}]/infer.
#include "infer.h"

#include <algorithm>
#include <charconv>

#include "../edge/answer_coding.h"
#include "../edge/background.h"
#include "../edge/error_response.h"
#include "../edge/route_options.h"
#include "forwarded_headers.h"
#include "infer_answer.h"
#include "infer_request.h"
#include "shared_memory.h"

namespace pytriton::http {

namespace {

constexpr uint64_t kMostReadAtOnce = 1 << 20;  // bytes of shared memory that take less than a millisecond

void send_later(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, size_t head_size,
                const Fallback& fall_back);

class V2Inference final : public HttpInference {
 public:
  V2Inference(Exchange& exchange, AnswerFormat&& format) : HttpInference(exchange), format_(std::move(format)) {}

 private:
  void respond(ModelResponse response, bool final) override {
    if (!response) {
      if (final) fail(Failure(Code::internal, "the model sent no response"), final);
      return;
    }
    if (is_answered_) return;
    Response answer = make_answer(response, format_);
    is_answered_ = true;
    {
      const ModelResponse done = std::move(response);
    }  // the server may unload the model while the client reads
    send_as_accepted(exchange(), std::move(answer));
  }

  void fail(const Failure& failure, bool /*final*/) override {
    if (is_answered_) return;
    is_answered_ = true;
    exchange().send(make_error(failure));
  }

  const AnswerFormat format_;
  bool is_answered_ = false;
};

size_t head_size_of(const Request& request, const Target& target) {
  const std::string_view text = head_size_text(request, target);
  if (text.empty()) return request.body.size();
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size > request.body.size()) {
    throw Failure(Code::invalid_argument, "inference header size should be in range (0, " +
                                              std::to_string(request.body.size()) + "), got: " + std::string(text));
  }
  return size;
}

void refuse_decoupled(TRITONSERVER_Server* server, const Target& target) {
  uint32_t flags = 0;
  void* user = nullptr;
  check(TRITONSERVER_ServerModelTransactionProperties(server, target.model.c_str(), target.version, &flags, &user));
  if (flags & TRITONSERVER_TXN_DECOUPLED)
    throw Failure(Code::unsupported, "HTTP end point doesn't support models with decoupled transaction policy");
}

// Answers the exchange, or leaves it to the server's endpoint. Throws Failure.
void send_request(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, size_t head_size,
                  const Fallback& fall_back, bool may_wait) {
  const Request& http = exchange.request();
  InferenceRequest request;
  request.model = target.model;
  request.version = target.version;
  read_infer_request(http.body, head_size, route_options().max_nesting, request);
  refuse_impossible_rows(server, request);
  const bool may_leave = target.binary_type.empty();
  bool is_left = may_leave && is_left_to_server();
  if (request.has_regions && !is_left) {
    if (!find_regions(request, may_wait, is_left)) return send_later(server, exchange, target, head_size, fall_back);
    if (is_left && !may_leave) throw Failure(Code::unsupported, "memory of a GPU is for requests below /v2");
    if (!is_left) read_regions(exchange, request);
  }
  if (is_left) return fall_back();
  forward_headers(http, request);
  AnswerFormat format;
  format.outputs = request.outputs;
  format.is_binary = request.is_binary;
  format.binary_type = target.binary_type;
  format.has_batch_axis = std::any_of(format.outputs.begin(), format.outputs.end(),
                                      [](const RequestedOutput& each) { return each.classes > 0; }) &&
                          has_batch_axis(server, request);
  infer(server, std::move(request), std::make_unique<V2Inference>(exchange, std::move(format)));
}

// On a thread that may wait for the server's own endpoint.
void send_later(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, size_t head_size,
                const Fallback& fall_back) {
  run_waiting(exchange.request().peer, [=, exchange = ExchangeReference(exchange)] {
    answer_failures(*exchange, [&] {
      const Charge charge = reserve_reading(*exchange, exchange->request().body.substr(0, head_size));
      send_request(server, *exchange, target, head_size, fall_back, true);
    });
  });
}

}  // namespace

bool has_batch_axis(TRITONSERVER_Server* server, const InferenceRequest& request) {
  uint32_t flags = 0;
  void* user = nullptr;
  check(TRITONSERVER_ServerModelBatchProperties(server, request.model.c_str(), request.version, &flags, &user));
  return flags & TRITONSERVER_BATCH_FIRST_DIM;
}

void refuse_impossible_rows(TRITONSERVER_Server* server, const InferenceRequest& request) {
  for (const Input& input : request.inputs) {
    if (input.shape.empty() || static_cast<uint64_t>(input.shape[0]) - 1 < UINT32_MAX) continue;
    if (!has_batch_axis(server, request)) return;
    throw Failure(Code::invalid_argument, "input '" + input.name + "' has a batch of " +
                                              std::to_string(input.shape[0]) + " rows for model '" + request.model +
                                              "'");
  }
}

bool find_regions(InferenceRequest& request, bool may_wait, bool& is_of_gpu) {
  uint64_t total = 0;
  const auto find = [&](RegionPart& part) {
    part.region = shared_regions().find(part.name);
    if (!part.region) {
      if (!may_wait) return false;
      part.region = shared_regions().look_up(part.name, route_options().server_socket);
      is_of_gpu |= !part.region;
    }
    if (part.region) part.region->check(part.offset, part.size);
    return true;
  };
  for (Input& input : request.inputs) {
    if (!input.part) continue;
    if (!find(*input.part)) return false;
    if (__builtin_add_overflow(total, input.part->size, &total)) total = UINT64_MAX;
  }
  for (RequestedOutput& output : request.outputs)
    if (output.part && !find(*output.part)) return false;
  if (total > route_options().max_body_bytes) {
    throw Failure(Code::invalid_argument, "inputs in shared memory have more than " +
                                              std::to_string(route_options().max_body_bytes) + " bytes");
  }
  return may_wait || total <= kMostReadAtOnce;
}

void read_regions(Caller& caller, InferenceRequest& request) {
  uint64_t total = 0;  // which find_regions() has bounded
  for (const Input& input : request.inputs) total += input.part ? input.part->size : 0;
  if (!caller.reserve(total, request.charge)) throw Failure(Code::unavailable, "no memory for the request's arrays");
  for (Input& input : request.inputs) {
    if (!input.part) continue;
    const size_t item = bytes_of(input.dtype), size = input.part->size;
    const uint64_t count = count_elements(input.shape, input.dtype, input.name);
    if (item && size != count * item) {
      throw Failure(Code::invalid_argument, "[request id: " + (request.id.empty() ? "<id_unknown>" : request.id) +
                                                "] input byte size mismatch for input '" + input.name +
                                                "' for model '" + request.model + "'. Expected " +
                                                std::to_string(count * item) + ", got " + std::to_string(size));
    }
    Memory data = allocate(size);
    input.part->region->read(input.part->offset, data.get(), size);
    input.data = data.get();
    input.size = size;
    request.storage.push_back(std::move(data));
  }
}

std::string_view head_size_text(const Request& request, const Target& target) {
  if (target.binary_type.empty()) return request.header("inference-header-content-length");
  const std::string_view type = request.header("content-type");
  const std::string_view begin = type.substr(0, target.binary_type.size());
  return equals_ignoring_case(begin, target.binary_type) ? type.substr(begin.size()) : std::string_view();
}

void infer_v2(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, const Fallback& fall_back) {
  answer_failures(exchange, [&] {
    refuse_decoupled(server, target);
    const size_t head_size = head_size_of(exchange.request(), target);
    if (head_size <= kLargeJson) return send_request(server, exchange, target, head_size, fall_back, false);
    answer_in_background(exchange, head_size,
                         [=](Exchange& to) { send_request(server, to, target, head_size, fall_back, false); });
  });
}

}  // namespace pytriton::http
