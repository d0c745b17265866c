// A message over gRPC, beside a server that answers with its inputs: it is refused, or its request is a right one. The
// first byte says what the rest is: a request to a model, or one for models, shared memory or settings.
#include "echo_server.h"
#include "frames/failure.h"
#include "frames/json.h"
#include "grpc/grpc_answer.h"
#include "grpc/grpc_control_request.h"
#include "grpc/grpc_request.h"
#include "target.h"

namespace {

using namespace pytriton::http;

// Whoever waits for an inference that is answered before the call that sends it returns.
class TestCaller final : public Caller {
 public:
  void on_disconnect(std::function<void()>) override {}
  void defer(std::function<void()> task) override { task(); }
  void retain() override { ++references_; }
  void release() override { --references_; }
  bool is_free() const { return references_ == 0; }

 private:
  int references_ = 0;
};

class TestInference final : public Inference {
 public:
  TestInference(Caller& caller, AnswerFormat&& format) : Inference(caller), format_(std::move(format)) {}

 private:
  void respond(ModelResponse response, bool final) override {
    if (response) require(make_message(response, format_, &final)->left() > kPrefixBytes, "an answer has its prefix");
  }
  void fail(const pytriton::Failure&, bool) override {}

  const AnswerFormat format_;
};

constexpr Action kControl[] = {Action::load,          Action::unload, Action::memory_register,
                               Action::memory_status, Action::trace,  Action::logging};

void read_control(const std::string& message, Action action, bool is_cuda) {
  V2Path path;
  path.action = action;
  path.is_cuda = is_cuda;
  if (action == Action::load || action == Action::unload) {
    read_model_control(message, action);
  } else if (is_shared_memory(action)) {
    const MemoryRequest request = read_memory_request(message, path);
    require(request.registration.size.has_value() == (action == Action::memory_register), "a region has a size");
  } else if (const SettingsRequest request = read_settings(message, action); !request.json.empty()) {
    require(pytriton::Json::parse(request.json).is(pytriton::Json::Kind::object), "settings are JSON");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  const std::string message(reinterpret_cast<const char*>(data) + 1, size - 1);
  const unsigned choice = data[0] % (2 * std::size(kControl));
  try {
    if (choice < std::size(kControl)) {
      read_control(message, kControl[choice], data[0] & 0x80);
      return 0;
    }
    TestCaller caller;
    {
      GrpcRequest request;
      read_grpc_request(message, [](size_t) {}, request);
      if (request.request.has_regions) return 0;
      AnswerFormat format;
      format.outputs = request.request.outputs;
      infer(nullptr, std::move(request.request), std::make_unique<TestInference>(caller, std::move(format)));
    }
    require(caller.is_free(), "an inference drops its caller");
  } catch (const pytriton::Failure&) {
  }
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
