// A request to a model, sent through the server's C API, and its responses.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../edge/exchange.h"
#include "../edge/server_functions.h"
#include "../frames/arrivals.h"
#include "../frames/spinning_mutex.h"

namespace pytriton::http {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, FreeDeleter>;
// Memory of an output that was taken from its response.
struct OutputDeleter {
  void operator()(char* block) const;
};
using OutputMemory = std::unique_ptr<char, OutputDeleter>;
Memory allocate(size_t size);  // aligned to 64 bytes; throws Failure if there is no memory

class SharedRegion;

// A part of a region of shared memory.
struct RegionPart {
  std::string name;
  uint64_t offset = 0, size = 0;               // bytes
  std::shared_ptr<const SharedRegion> region;  // once it is known
};

struct Input {
  std::string name;
  TRITONSERVER_DataType dtype{};
  std::vector<int64_t> shape;
  const void* data = nullptr;      // in the request's body, or in `storage`
  size_t size = 0;                 // bytes
  std::optional<RegionPart> part;  // where the data are to be read from
};

struct RequestedOutput {
  std::string name;
  uint32_t classes = 0;  // > 0: that many of the highest values, with their labels
  bool binary = false;
  std::optional<RegionPart> part;  // where it is to be written to
};

struct Parameter {
  std::string name;
  TRITONSERVER_ParameterType type{};
  std::string text;
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
};

struct InferenceRequest {
  std::string model;
  int64_t version = -1;  // the one that the server's policy chooses
  std::string id;
  std::vector<Input> inputs;
  bool is_raw = false;                   // the only input has no more than data: name, dtype and shape are the model's
  std::vector<RequestedOutput> outputs;  // empty: all, in the form of `is_binary`
  bool is_binary = false;
  std::vector<Parameter> parameters;
  uint64_t sequence = 0, priority = 0, timeout_us = 0;
  std::string sequence_name;
  bool sequence_start = false, sequence_end = false;
  bool is_copy = false;         // of a request to a Shadow, which is not copied again
  bool has_regions = false;     // an input or output is a part of a region
  std::vector<Memory> storage;  // data of inputs that was converted
  Charge charge;                // of that, if it is reserved already
};

// An output of a response, valid as long as that.
struct Output {
  std::string_view name;
  TRITONSERVER_DataType dtype{};
  const int64_t* shape = nullptr;
  uint64_t rank = 0;
  const char* data = nullptr;
  size_t size = 0;
  void* block = nullptr;
};

// One response of a model; deletes the server's.
class ModelResponse {
 public:
  // The model that was called, and its version, if another one answers; else no name.
  struct Called {
    std::string model;
    int64_t version = 0;
  };
  ModelResponse(TRITONSERVER_InferenceResponse* response, const Called& called)
      : response_(response), called_(called) {}

  // False: this only tells that there are no more.
  explicit operator bool() const { return response_ != nullptr; }

  void check_success() const;  // throws the model's error as Failure
  std::string_view model() const;
  int64_t version() const;
  std::string_view id() const;
  uint32_t output_count() const;
  Output output(uint32_t index) const;
  std::string_view label(uint32_t output, size_t value) const;  // of a class; empty if there is none
  std::vector<Parameter> parameters() const;

  // Memory of an output, which is kept when the response is deleted. Once per output.
  static OutputMemory take(const Output& output);

 private:
  struct Deleter {
    void operator()(TRITONSERVER_InferenceResponse* response) const {
      ignore(TRITONSERVER_InferenceResponseDelete(response));
    }
  };
  std::unique_ptr<TRITONSERVER_InferenceResponse, Deleter> response_;
  const Called& called_;
};

class ShadowCopy;
class Traffic;

// A request in flight. Lives until the server has released the request and sent the last response, in whichever order.
class Inference {
 public:
  explicit Inference(Caller& caller);
  virtual ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 protected:
  // Called on threads of the server, for one response at a time; `final` with the last one, which may be false.
  virtual void respond(ModelResponse response, bool final) = 0;

  // Called instead of respond() if that throws, which is an error of the edge; has to answer the caller.
  virtual void fail(const Failure& failure, bool final) = 0;

  // Called instead of respond() if the server does not take the request; has to answer the caller.
  virtual void refuse(const Failure& failure) { fail(failure, true); }

  // Tells the server that nobody waits for the responses.
  void cancel();

  // Takes a call of cancel() for when the client disconnects; nullptr: no more, as Caller::on_disconnect() has it.
  virtual void watch(std::function<void()> cancel) { caller_->on_disconnect(std::move(cancel)); }

 private:
  friend void infer(TRITONSERVER_Server*, InferenceRequest&&, std::unique_ptr<Inference>);
  struct Hop {
    std::shared_ptr<Traffic> traffic;
    size_t chosen;  // the next model
  };
  static std::vector<Hop> find_hops(TRITONSERVER_Server* server, const InferenceRequest& request);
  void make_passed_on(TRITONSERVER_Server* server, InferenceRequest& request);
  void make(TRITONSERVER_Server* server, const InferenceRequest& request);
  void submit(TRITONSERVER_Server* server) noexcept;
  void complete(TRITONSERVER_InferenceResponse* response, bool final) noexcept;
  void drop() noexcept;

  TRITONSERVER_Server* server_ = nullptr;
  Reference<Caller> caller_;
  ModelResponse::Called called_;
  std::vector<Hop> hops_;                      // to the model that answers
  std::optional<Reference<ShadowCopy>> copy_;  // which is sent after the answer
  std::vector<Memory> storage_;
  Charge charge_;        // of that
  SpinningMutex mutex_;  // of respond() and fail()
  TRITONSERVER_InferenceRequest* request_ = nullptr;
  Arrivals* arrivals_ = nullptr;  // of the model; null if nobody asks for them
  std::atomic<int> holders_{3};   // the server for the request, the server for its responses, infer() until it returns
};

// One that answers a request of HTTP.
class HttpInference : public Inference {
 public:
  explicit HttpInference(Exchange& exchange) : Inference(exchange), exchange_(exchange) {}

 protected:
  Exchange& exchange() const { return exchange_; }

 private:
  Exchange& exchange_;
};

// Sends a request. Keeps the caller, whose body may hold inputs, as long as the inference. The request is cancelled
// if the client disconnects.
//
// Throws Failure if there is no such model, or a parameter cannot be set; `inference` is not called then.
void infer(TRITONSERVER_Server* server, InferenceRequest&& request, std::unique_ptr<Inference> inference);

}  // namespace pytriton::http
