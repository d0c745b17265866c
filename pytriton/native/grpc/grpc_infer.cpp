// ModelInfer and ModelStreamInfer.
#include <algorithm>

#include "../edge/background.h"
#include "../edge/route_options.h"
#include "../kserve/forwarded_headers.h"
#include "../kserve/infer.h"
#include "grpc_answer.h"
#include "grpc_request.h"
#include "grpc_routes.h"
#include "proto.h"

namespace pytriton::http {

namespace {

// A call with one response.
class UnaryInference final : public Inference {
 public:
  UnaryInference(GrpcCall& call, AnswerFormat&& format) : Inference(call), call_(call), format_(std::move(format)) {}

 private:
  void respond(ModelResponse response, bool final) override {
    if (!response) {
      if (final) fail(Failure(Code::internal, "the model sent no response"), final);
      return;
    }
    if (is_answered_) return;
    MessagePointer message = make_message(response, format_, nullptr);
    is_answered_ = true;
    {
      const ModelResponse done = std::move(response);
    }  // the server may unload the model while the client reads
    call_.answer(std::move(message), true, true);
  }

  void fail(const Failure& failure, bool /*final*/) override {
    if (std::exchange(is_answered_, true)) return;
    call_.fail(failure, {});
  }

  GrpcCall& call_;
  const AnswerFormat format_;
  bool is_answered_ = false;
};

// A request of a stream.
class StreamInference final : public Inference {
 public:
  StreamInference(GrpcCall& call, const GrpcRequest& request, AnswerFormat&& format)
      : Inference(call),
        call_(call),
        format_(std::move(format)),
        model_(request.request.model),
        id_(request.request.id),
        wants_final_(request.wants_final) {}

 private:
  void respond(ModelResponse response, bool final) override {
    MessagePointer message;
    if (response) {
      message = make_message(response, format_, &final);
    } else if (final && wants_final_) {
      message = make_final_message(model_, id_);
    }
    {
      const ModelResponse done = std::move(response);
    }
    if (message || final) call_.answer(std::move(message), final, false);
  }

  void fail(const Failure& failure, bool final) override {
    call_.answer(make_failed_message(failure.what(), model_, id_, final), final, false);
  }

  void refuse(const Failure& failure) override { call_.fail(failure, id_); }

  GrpcCall& call_;
  const AnswerFormat format_;
  const std::string model_, id_;
  const bool wants_final_;
};

bool is_decoupled(TRITONSERVER_Server* server, const InferenceRequest& request) {
  uint32_t flags = 0;
  void* user = nullptr;
  check(TRITONSERVER_ServerModelTransactionProperties(server, request.model.c_str(), request.version, &flags, &user));
  return flags & TRITONSERVER_TXN_DECOUPLED;
}

void send(GrpcCall& call, GrpcRequest& from) {
  TRITONSERVER_Server* const server = call.edge().server();
  InferenceRequest& request = from.request;
  AnswerFormat format;
  format.outputs = request.outputs;
  format.has_batch_axis = std::any_of(format.outputs.begin(), format.outputs.end(),
                                      [](const RequestedOutput& each) { return each.classes > 0; }) &&
                          has_batch_axis(server, request);
  std::unique_ptr<Inference> inference;
  if (call.is_of_stream()) {
    inference = std::make_unique<StreamInference>(call, from, std::move(format));
  } else {
    inference = std::make_unique<UnaryInference>(call, std::move(format));
  }
  infer(server, std::move(request), std::move(inference));
}

template <typename Function>
void fail_with(GrpcCall& call, const std::string& id, const Function& function) {
  try {
    function();
  } catch (const Failure& failure) {
    call.fail(failure, id);
  } catch (const std::bad_alloc&) {
    call.fail(Failure(Code::unavailable, "no memory for the request"), id);
  }
}

// Reads the inputs in shared memory; false if one has to be looked up, or if that takes long.
bool read_memory(GrpcCall& call, InferenceRequest& request, bool may_wait) {
  bool is_of_gpu = false;
  if (!find_regions(request, may_wait, is_of_gpu)) return false;
  if (is_of_gpu)
    throw Failure(Code::unsupported, "memory of a GPU is not supported over gRPC: use grpc_frontend='triton'");
  read_regions(call, request);
  return true;
}

// Whether a message has typed contents of inputs that take long to read; not, if it is none.
bool has_long_contents(std::string_view message) {
  constexpr unsigned kRawContents = 7;
  if (message.size() <= kLargeJson) return false;
  try {
    ProtoReader reader(message);
    while (const unsigned field = reader.next()) {
      if (field == kRawContents) return false;  // beside these, there may be none
      reader.skip();
    }
  } catch (const Failure&) {
    return false;
  }
  return true;
}

// The deadline of a call is that of its request, unless the request has a timeout of its own.
void add_deadline(const GrpcStream& stream, InferenceRequest& request) {
  if (request.timeout_us || stream.timeout_ns < 0) return;
  const int64_t left_ns = stream.began_at + stream.timeout_ns - now_ns();
  request.timeout_us = static_cast<uint64_t>(std::max<int64_t>(left_ns / 1000, 1));
}

// Reads and sends a request. `may_wait`: this is not the loop's thread, and further messages of the stream wait.
void begin(GrpcCall& call, bool may_wait) {
  auto from = std::make_shared<GrpcRequest>();
  InferenceRequest& request = from->request;
  TRITONSERVER_Server* const server = call.edge().server();
  bool has_place = !call.is_of_stream();
  const auto keep_order = [&] {
    if (!std::exchange(has_place, true)) call.keep_order();
  };
  try {
    read_grpc_request(call.body(), [&](size_t bytes) { call.admit_contents(bytes); }, *from);
    if (is_decoupled(server, request)) {
      if (!call.is_of_stream())
        throw Failure(Code::unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy");
      has_place = true;
    }
    keep_order();
    refuse_impossible_rows(server, request);
    forward_headers(call.stream()->request, request, Protocol::grpc);
    add_deadline(*call.stream(), request);
  } catch (const Failure& failure) {
    keep_order();
    return call.fail(failure, request.id);
  } catch (const std::bad_alloc&) {
    keep_order();
    return call.fail(Failure(Code::unavailable, "no memory for the request"), request.id);
  }
  fail_with(call, request.id, [&] {
    if (!request.has_regions || read_memory(call, request, may_wait)) return send(call, *from);
    run_waiting(call.connection().peer(), [&call, reference = Reference<GrpcCall>(call), from, held = call.hold()] {
      fail_with(call, from->request.id, [&] {
        read_memory(call, from->request, true);
        send(call, *from);
      });
    });
  });
}

}  // namespace

void infer_grpc(GrpcCall& call) {
  if (!has_long_contents(call.body())) return begin(call, false);
  run_in_background(call.connection().peer(), call.body().size(),
                    [&call, reference = Reference<GrpcCall>(call), held = call.hold()] { begin(call, true); });
}

}  // namespace pytriton::http
