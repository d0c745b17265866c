#include "inference.h"

#include <malloc.h>

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "models.h"
#include "shadow.h"
#include "traffic.h"

namespace pytriton::http {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMostHops = 8;  // of models that pass a request on; the callable of the next one finds cycles

// Precedes the memory of an output.
struct alignas(kAlignment) Block {
  bool is_taken = false;
  Charge charge;
};

constexpr size_t kSmallBytes = 16 << 10;  // of outputs and arrays, which are not charged

size_t rounded(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Outputs have memory of the CPU, wherever the model would like it.
TRITONSERVER_Error* allocate_output(TRITONSERVER_ResponseAllocator* /*allocator*/, const char* name, size_t size,
                                    TRITONSERVER_MemoryType /*memory*/, int64_t /*device*/, void* user, void** base,
                                    void** block, TRITONSERVER_MemoryType* actual_memory,
                                    int64_t* actual_device) noexcept {
  Charge charge;
  if (size > kSmallBytes && !static_cast<Caller*>(user)->reserve(size, charge))
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "there is no memory for the answer");
  void* memory = size < SIZE_MAX / 2 ? std::aligned_alloc(kAlignment, sizeof(Block) + rounded(size)) : nullptr;
  if (!memory) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_UNAVAILABLE,
        ("no memory for output '" + std::string(name) + "' of " + std::to_string(size) + " bytes").c_str());
  }
  *block = new (memory) Block{false, std::move(charge)};
  *base = static_cast<char*>(memory) + sizeof(Block);
  *actual_memory = TRITONSERVER_MEMORY_CPU;
  *actual_device = 0;
  return nullptr;
}

TRITONSERVER_Error* free_output(TRITONSERVER_ResponseAllocator* /*allocator*/, void* /*base*/, void* block,
                                size_t /*size*/, TRITONSERVER_MemoryType /*memory*/, int64_t /*device*/) noexcept {
  if (!static_cast<Block*>(block)->is_taken) OutputDeleter()(static_cast<char*>(block));
  return nullptr;
}

TRITONSERVER_ResponseAllocator* allocator() {
  static TRITONSERVER_ResponseAllocator* const made = [] {
    TRITONSERVER_ResponseAllocator* allocator = nullptr;
    check(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate_output, free_output, nullptr));
    return allocator;
  }();
  return made;
}

void set(TRITONSERVER_InferenceRequest* to, const Parameter& parameter) {
  const char* name = parameter.name.c_str();
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
      return check(TRITONSERVER_InferenceRequestSetStringParameter(to, name, parameter.text.c_str()));
    case TRITONSERVER_PARAMETER_INT:
      return check(TRITONSERVER_InferenceRequestSetIntParameter(to, name, parameter.integer));
    case TRITONSERVER_PARAMETER_BOOL:
      return check(TRITONSERVER_InferenceRequestSetBoolParameter(to, name, parameter.flag));
    default:
      return check(TRITONSERVER_InferenceRequestSetDoubleParameter(to, name, parameter.number));
  }
}

}  // namespace

void OutputDeleter::operator()(char* block) const {
  reinterpret_cast<Block*>(block)->~Block();
  std::free(block);
}

Memory allocate(size_t size) {
  Memory memory(size < SIZE_MAX / 2 ? static_cast<char*>(std::aligned_alloc(kAlignment, rounded(size ? size : 1)))
                                    : nullptr);
  if (!memory) throw Failure(Code::unavailable, "no memory for " + std::to_string(size) + " bytes");
  return memory;
}

void ModelResponse::check_success() const {
  // The server's header says that the response owns it, but each call makes a new one.
  check(TRITONSERVER_InferenceResponseError(response_.get()));
}

std::string_view ModelResponse::model() const {
  if (!called_.model.empty()) return called_.model;
  const char* name = nullptr;
  int64_t version = 0;
  check(TRITONSERVER_InferenceResponseModel(response_.get(), &name, &version));
  return name;
}

int64_t ModelResponse::version() const {
  if (!called_.model.empty()) return called_.version;
  const char* name = nullptr;
  int64_t version = 0;
  check(TRITONSERVER_InferenceResponseModel(response_.get(), &name, &version));
  return version;
}

std::string_view ModelResponse::id() const {
  const char* id = nullptr;
  check(TRITONSERVER_InferenceResponseId(response_.get(), &id));
  return id ? id : "";
}

uint32_t ModelResponse::output_count() const {
  uint32_t count = 0;
  check(TRITONSERVER_InferenceResponseOutputCount(response_.get(), &count));
  return count;
}

Output ModelResponse::output(uint32_t index) const {
  Output output;
  const char* name = nullptr;
  const void* data = nullptr;
  TRITONSERVER_MemoryType memory{};
  int64_t device = 0;
  check(TRITONSERVER_InferenceResponseOutput(response_.get(), index, &name, &output.dtype, &output.shape, &output.rank,
                                             &data, &output.size, &memory, &device, &output.block));
  output.name = name;
  output.data = static_cast<const char*>(data);
  return output;
}

std::string_view ModelResponse::label(uint32_t output, size_t value) const {
  const char* label = nullptr;
  check(TRITONSERVER_InferenceResponseOutputClassificationLabel(response_.get(), output, value, &label));
  return label ? label : "";
}

std::vector<Parameter> ModelResponse::parameters() const {
  uint32_t count = 0;
  check(TRITONSERVER_InferenceResponseParameterCount(response_.get(), &count));
  std::vector<Parameter> parameters(count);
  for (uint32_t index = 0; index < count; ++index) {
    Parameter& parameter = parameters[index];
    const char* name = nullptr;
    const void* value = nullptr;
    check(TRITONSERVER_InferenceResponseParameter(response_.get(), index, &name, &parameter.type, &value));
    parameter.name = name;
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_INT:
        parameter.integer = *static_cast<const int64_t*>(value);
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        parameter.flag = *static_cast<const bool*>(value);
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        parameter.number = *static_cast<const double*>(value);
        break;
      default:
        parameter.text = static_cast<const char*>(value);
    }
  }
  return parameters;
}

OutputMemory ModelResponse::take(const Output& output) {
  static_cast<Block*>(output.block)->is_taken = true;
  return OutputMemory(static_cast<char*>(output.block));
}

Inference::Inference(Caller& caller) : caller_(caller) {}

Inference::~Inference() {
  if (request_) ignore(TRITONSERVER_InferenceRequestDelete(request_));
}

// The models that pass a request on, one to the next; empty if the model that is called answers itself.
std::vector<Inference::Hop> Inference::find_hops(TRITONSERVER_Server* server, const InferenceRequest& request) {
  std::vector<Hop> hops;
  Models& models = models_of(server);
  auto model = models.find_known(request.model, request.version);
  bool has_shadow = false;
  while (model && model->traffic && hops.size() < kMostHops) {
    const std::shared_ptr<Traffic>& traffic = model->traffic;
    const bool is_shadow = traffic->comparison().has_value();
    const auto chosen = has_shadow && is_shadow ? std::nullopt : traffic->choose(request);
    if (!chosen) break;
    hops.push_back({traffic, *chosen});
    has_shadow |= is_shadow;
    model = models.find_known(traffic->targets()[*chosen], -1);
  }
  return hops;
}

// Makes the request for the model that answers; for the one that is called, if the other is not there.
void Inference::make_passed_on(TRITONSERVER_Server* server, InferenceRequest& request) {
  std::vector<Hop> hops = find_hops(server, request);
  if (hops.empty()) return make(server, request);
  const std::string called = request.model;
  const int64_t version = std::exchange(request.version, -1);
  request.model = hops.back().traffic->targets()[hops.back().chosen];
  try {
    make(server, request);
  } catch (const Failure&) {
    if (request_) ignore(TRITONSERVER_InferenceRequestDelete(std::exchange(request_, nullptr)));
    request.model = called;
    request.version = version;
    return make(server, request);
  }
  called_ = {called, hops.front().traffic->version()};
  for (const Hop& hop : hops) {
    if (!hop.traffic->comparison()) {
      hop.traffic->count(hop.chosen);
      continue;
    }
    if (request.is_copy) continue;
    if (auto begun = ShadowCopy::begin(hop.traffic, request, *caller_)) copy_.emplace(std::move(*begun));
  }
  hops_ = std::move(hops);
}

void Inference::make(TRITONSERVER_Server* server, const InferenceRequest& request) {
  check(TRITONSERVER_InferenceRequestNew(&request_, server, request.model.c_str(), request.version));
  if (!request.id.empty()) check(TRITONSERVER_InferenceRequestSetId(request_, request.id.c_str()));
  const uint32_t flags = (request.sequence_start ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START : 0) |
                         (request.sequence_end ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_END : 0);
  if (flags) check(TRITONSERVER_InferenceRequestSetFlags(request_, flags));
  if (!request.sequence_name.empty()) {
    check(TRITONSERVER_InferenceRequestSetCorrelationIdString(request_, request.sequence_name.c_str()));
  } else if (request.sequence) {
    check(TRITONSERVER_InferenceRequestSetCorrelationId(request_, request.sequence));
  }
  if (request.priority) {
    check(TRITONSERVER_InferenceRequestSetPriorityUInt64(request_, request.priority));
    // The server forgets a level that the model does not have, but callables hand it on to the models that they call.
    const auto level = static_cast<int64_t>(request.priority);
    check(TRITONSERVER_InferenceRequestSetIntParameter(request_, "priority", level));
  }
  if (request.timeout_us) check(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request_, request.timeout_us));
  for (const Parameter& parameter : request.parameters) set(request_, parameter);
  for (const Input& input : request.inputs) {
    const char* name = input.name.c_str();
    check(request.is_raw ? TRITONSERVER_InferenceRequestAddRawInput(request_, name)
                         : TRITONSERVER_InferenceRequestAddInput(request_, name, input.dtype, input.shape.data(),
                                                                 input.shape.size()));
    check(TRITONSERVER_InferenceRequestAppendInputData(request_, name, input.data, input.size, TRITONSERVER_MEMORY_CPU,
                                                       0));
  }
  for (const RequestedOutput& output : request.outputs)
    check(TRITONSERVER_InferenceRequestAddRequestedOutput(request_, output.name.c_str()));
  check(TRITONSERVER_InferenceRequestSetReleaseCallback(
      request_,
      [](TRITONSERVER_InferenceRequest*, uint32_t released, void* user) noexcept {
        if (released & TRITONSERVER_REQUEST_RELEASE_ALL) static_cast<Inference*>(user)->drop();
      },
      this));
  check(TRITONSERVER_InferenceRequestSetResponseCallback(
      request_, allocator(), &*caller_,
      [](TRITONSERVER_InferenceResponse* response, uint32_t completed, void* user) noexcept {
        static_cast<Inference*>(user)->complete(response, completed & TRITONSERVER_RESPONSE_COMPLETE_FINAL);
      },
      this));
}

void Inference::submit(TRITONSERVER_Server* server) noexcept {
  try {
    try {
      check(TRITONSERVER_ServerInferAsync(server, request_, nullptr));
      // Before it is sent, a request cannot be cancelled.
      watch([this] { cancel(); });
      return drop();
    } catch (const Failure& failure) {
      if (arrivals_) arrivals_->withdraw();
      for (const Hop& hop : hops_)
        if (!hop.traffic->comparison()) hop.traffic->uncount(hop.chosen);
      refuse(failure);
    }
  } catch (const std::exception&) {
    // There is no memory for an answer: the caller ends without one.
  }
  delete this;
}

void Inference::complete(TRITONSERVER_InferenceResponse* response, bool final) noexcept {
  try {
    const std::lock_guard<SpinningMutex> lock(mutex_);
    try {
      ModelResponse received(response, called_);
      if (copy_) (*copy_)->keep(received);
      respond(std::move(received), final);
    } catch (const Failure& failure) {
      fail(failure, final);
    } catch (const std::exception& error) {
      fail(Failure(Code::internal, error.what()), final);
    }
  } catch (const std::exception&) {
    // There is no memory for an answer: the caller ends without one.
  }
  if (!final) return;
  if (copy_) (*copy_)->send(server_);
  drop();
}

// The request of the server is there as long as this object, which watch(nullptr) of drop() waits for.
void Inference::cancel() { ignore(TRITONSERVER_InferenceRequestCancel(request_)); }

void Inference::drop() noexcept {
  if (--holders_) return;
  watch(nullptr);  // from here on, no other thread knows this object
  delete this;
}

void infer(TRITONSERVER_Server* server, InferenceRequest&& request, std::unique_ptr<Inference> inference) {
  uint64_t bytes = 0;
  for (const Memory& memory : request.storage) bytes += ::malloc_usable_size(memory.get());
  if (bytes > kSmallBytes && request.charge.bytes() < bytes && !inference->caller_->reserve(bytes, request.charge))
    throw Failure(Code::unavailable, "no memory for the request's arrays");
  inference->storage_ = std::move(request.storage);
  inference->charge_ = std::move(request.charge);
  inference->server_ = server;
  inference->make_passed_on(server, request);
  inference->arrivals_ = find_arrivals(request.model.c_str());
  if (inference->arrivals_) inference->arrivals_->announce();
  Inference* const made = inference.release();
  made->caller_->defer([made, server] { made->submit(server); });
}

}  // namespace pytriton::http
