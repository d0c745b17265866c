// POST /v2/models/{model}[/versions/{version}]/infer.
#include <algorithm>
#include <charconv>

#include "background.h"
#include "forwarding.h"
#include "infer_answer.h"
#include "infer_request.h"
#include "routes.h"

namespace pytriton::http {

namespace {

class V2Inference final : public Inference {
 public:
  V2Inference(Exchange& exchange, AnswerFormat&& format) : Inference(exchange), format_(std::move(format)) {}

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
    exchange().send(std::move(answer));
  }

  void fail(const Failure& failure, bool /*final*/) override {
    if (is_answered_) return;
    is_answered_ = true;
    exchange().send(make_error(failure));
  }

  const AnswerFormat format_;
  bool is_answered_ = false;
};

size_t head_size_of(const Request& request) {
  const std::string_view text = request.header("inference-header-content-length");
  if (text.empty()) return request.body.size();
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size > request.body.size()) {
    throw Failure(Code::invalid_argument, "inference header size should be in range (0, " +
                                              std::to_string(request.body.size()) + "), got: " + std::string(text));
  }
  return size;
}

bool has_batch_axis(TRITONSERVER_Server* server, const Target& target) {
  uint32_t flags = 0;
  void* user = nullptr;
  check(TRITONSERVER_ServerModelBatchProperties(server, target.model.c_str(), target.version, &flags, &user));
  return flags & TRITONSERVER_BATCH_FIRST_DIM;
}

void refuse_decoupled(TRITONSERVER_Server* server, const Target& target) {
  uint32_t flags = 0;
  void* user = nullptr;
  check(TRITONSERVER_ServerModelTransactionProperties(server, target.model.c_str(), target.version, &flags, &user));
  if (flags & TRITONSERVER_TXN_DECOUPLED)
    throw Failure(Code::unsupported, "HTTP end point doesn't support models with decoupled transaction policy");
}

// The server takes a first extent modulo 2^32, and the batch axis away if nothing remains.
void refuse_impossible_rows(TRITONSERVER_Server* server, const Target& target, const InferenceRequest& request) {
  for (const Input& input : request.inputs) {
    if (input.shape.empty() || static_cast<uint64_t>(input.shape[0]) - 1 < UINT32_MAX) continue;
    if (!has_batch_axis(server, target)) return;
    throw Failure(Code::invalid_argument, "input '" + input.name + "' has a batch of " +
                                              std::to_string(input.shape[0]) + " rows for model '" + target.model +
                                              "'");
  }
}

// Answers the exchange, unless it is left to the server's endpoint. Throws Failure.
bool send_request(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, size_t head_size) {
  const Request& http = exchange.request();
  InferenceRequest request;
  request.model = target.model;
  request.version = target.version;
  if (!read_infer_request(http.body, head_size, route_options().max_nesting, request)) return false;
  refuse_impossible_rows(server, target, request);
  forward_headers(http, request);
  AnswerFormat format{request.outputs, request.is_binary};
  format.has_batch_axis = std::any_of(format.outputs.begin(), format.outputs.end(),
                                      [](const RequestedOutput& each) { return each.classes > 0; }) &&
                          has_batch_axis(server, target);
  infer(server, std::move(request), std::make_unique<V2Inference>(exchange, std::move(format)));
  return true;
}

void send_in_background(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, size_t head_size) {
  run_in_background([=, exchange = ExchangeReference(exchange)] {
    const bool is_sent = answer_failures(*exchange, [&] { return send_request(server, *exchange, target, head_size); });
    if (is_sent) return;
    // It is too late to leave it to the server's endpoint.
    exchange->send(make_error(Failure(Code::invalid_argument, "a request that names shared memory has at most " +
                                                                  std::to_string(kLargeJson) +
                                                                  " bytes of JSON; send other inputs as binary data")));
  });
}

}  // namespace

bool infer_v2(TRITONSERVER_Server* server, Exchange& exchange, const Target& target) {
  const Request& http = exchange.request();
  if (http.method != "POST" || is_left_to_server(http)) return false;
  return answer_failures(exchange, [&] {
    refuse_decoupled(server, target);
    const size_t head_size = head_size_of(http);
    if (head_size <= kLargeJson) return send_request(server, exchange, target, head_size);
    send_in_background(server, exchange, target, head_size);
    return true;
  });
}

}  // namespace pytriton::http
