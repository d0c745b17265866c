#include "echo_server.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "edge/server_functions.h"
#include "kserve/dtypes.h"

using pytriton::http::Header;
using pytriton::http::Response;

namespace {

constexpr std::string_view kConfig = R"({"name": "m", "max_batch_size": 8, "input": [
  {"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "optional": true},
  {"name": "n", "data_type": "TYPE_INT64", "dims": [1], "optional": true},
  {"name": "t", "data_type": "TYPE_STRING", "dims": [-1], "optional": true},
  {"name": "h", "data_type": "TYPE_FP16", "dims": [2], "optional": true},
  {"name": "b", "data_type": "TYPE_BOOL", "dims": [2, 2], "optional": true}]})";
const char* const kNames[] = {"<invalid>", "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
                              "INT32",     "INT64", "FP16",  "FP32",   "FP64",   "BYTES",  "BF16"};

constexpr std::chrono::minutes kMostWait{2};
std::atomic<int> requests_alive{0}, responses_alive{0}, answering{0};

}  // namespace

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};
struct TRITONSERVER_Message {
  std::string text;
};
struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_AllocateFn allocate;
  TRITONSERVER_FreeFn free;
};
struct TRITONSERVER_InferenceRequest {
  struct Input {
    TRITONSERVER_DataType dtype{};
    std::vector<int64_t> shape;
    std::string data;
    bool is_raw = false;
  };
  std::string model, id;
  std::map<std::string, Input> inputs;
  std::vector<std::string> outputs;
  std::atomic<bool> cancelled{false};
  TRITONSERVER_ReleaseFn release = nullptr;
  TRITONSERVER_CompleteFn complete = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void *user = nullptr, *allocator_user = nullptr;
};
struct TRITONSERVER_InferenceResponse {
  struct Output {
    std::string name;
    TRITONSERVER_DataType dtype;
    std::vector<int64_t> shape;
    void* base;
    size_t size;
    void* user;
  };
  std::string model, id;
  std::vector<Output> outputs;
  TRITONSERVER_Error* error = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
};

std::atomic<bool> has_threads{false};
std::map<std::string, std::string> configurations;

namespace {

TRITONSERVER_Error* refuse(const std::string& message, TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INVALID_ARG) {
  return new TRITONSERVER_Error{code, message};
}

void respond(TRITONSERVER_InferenceRequest* request, bool final) {
  auto* response = new TRITONSERVER_InferenceResponse;
  ++responses_alive;
  response->model = request->model;
  response->id = request->id;
  response->allocator = request->allocator;
  if (request->model == "fails") response->error = refuse("it fails", TRITONSERVER_ERROR_INTERNAL);
  for (auto& [name, input] : request->inputs) {
    if (response->error) break;
    if (!request->outputs.empty() &&
        std::find(request->outputs.begin(), request->outputs.end(), name) == request->outputs.end())
      continue;
    auto& output = response->outputs.emplace_back();
    output = {name, input.dtype, input.shape, nullptr, input.data.size(), nullptr};
    TRITONSERVER_MemoryType memory{};
    int64_t device = 0;
    if (auto* error =
            request->allocator->allocate(request->allocator, name.c_str(), output.size, memory, 0,
                                         request->allocator_user, &output.base, &output.user, &memory, &device)) {
      TRITONSERVER_ErrorDelete(error);
      broken("there is memory for an output");
    }
    if (output.size) std::memcpy(output.base, input.data.data(), output.size);
  }
  request->complete(response, final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, request->user);
}

void answer(TRITONSERVER_InferenceRequest* request, unsigned seed) {
  std::minstd_rand random(seed);
  const bool is_released_first = random() % 2, is_stream = request->model == "stream";
  for (int number = is_stream ? 0 : 2; number < 2 && !request->cancelled; ++number) respond(request, false);
  const auto complete = request->complete;
  void* user = request->user;
  if (request->model == "none" || (is_stream && is_released_first)) {
    if (is_released_first) request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, user);
    auto* kept = is_released_first ? nullptr : request;
    complete(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL, user);
    if (kept) kept->release(kept, TRITONSERVER_REQUEST_RELEASE_ALL, user);
  } else {
    respond(request, true);
    request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, user);
  }
  --answering;
}

}  // namespace

void wait_for_answers() {
  while (answering) std::this_thread::yield();
}

int leftovers() { return requests_alive + responses_alive; }

void broken(const std::string& rule) {
  std::fprintf(stderr, "broken: %s\n", rule.c_str());
  std::abort();
}

void require(bool condition, const std::string& rule) {
  if (!condition) broken(rule);
}

TestExchange::TestExchange(std::string body, std::vector<Header> headers) : body_(std::move(body)) {
  const size_t size = body_.size();
  body_.append(pytriton::http::kPadding, '\xFF');
  request_.method = "POST";
  request_.headers = std::move(headers);
  request_.body = {body_.data(), size};
}

TestExchange::~TestExchange() { require(references_ == 0, "an exchange is released"); }

void TestExchange::send(Response&& response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(!is_begun_ && !is_complete_, "an exchange is answered once");
  status = response.status;
  content_type = response.content_type;
  headers = response.headers;
  answer = response.body;
  for (const iovec& part : response.parts) answer.append(static_cast<const char*>(part.iov_base), part.iov_len);
  cancel_ = nullptr;
  is_complete_ = true;
}

void TestExchange::begin(Response&& head) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(!is_begun_ && !is_complete_, "an exchange is answered once");
  is_begun_ = true;
  status = head.status;
  content_type = head.content_type;
}

void TestExchange::write(std::string&& chunk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(is_begun_ && !is_complete_, "chunks are written between begin and end");
  answer += chunk;
}

void TestExchange::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(is_begun_ && !is_complete_, "an answer ends once, after its begin");
  cancel_ = nullptr;
  is_complete_ = true;
}

void TestExchange::on_disconnect(std::function<void()> cancel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancel_ = nullptr;
  if (!cancel || is_complete_) return;
  if (is_gone_) return cancel();
  cancel_ = std::move(cancel);
}

void TestExchange::disconnect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_gone_ = true;
  if (cancel_) std::exchange(cancel_, nullptr)();
}

void TestExchange::wait_unless(const std::atomic<bool>& is_left) const {
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  while ((!is_complete_ && !is_left) || references_) {
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() > end)
      broken("an answer comes to " + std::string(request_.body.substr(0, 100)));
  }
}

void TestExchange::wait() const { wait_unless(false); }

extern "C" {
TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return new TRITONSERVER_Error{code, message};
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete error; }
TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, int, const char*) { return nullptr; }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* name) {
  for (int code = 1; code < 15; ++code)
    if (!std::strcmp(name, kNames[code])) return TRITONSERVER_DataType{code};
  return {};
}
const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType dtype) { return kNames[static_cast<int>(dtype)]; }

TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server*, const char* model, int64_t, uint32_t,
                                                   TRITONSERVER_Message** config) {
  if (!std::strcmp(model, "unknown")) return refuse("Request for unknown model", TRITONSERVER_ERROR_NOT_FOUND);
  const auto found = configurations.find(model);
  *config = new TRITONSERVER_Message{found == configurations.end() ? std::string(kConfig) : found->second};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message, const char** base,
                                                        size_t* size) {
  *base = message->text.data();
  *size = message->text.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete message;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server*, const char* model, int64_t,
                                                                  uint32_t* flags, void**) {
  if (!std::strcmp(model, "unknown")) return refuse("Request for unknown model", TRITONSERVER_ERROR_NOT_FOUND);
  *flags = std::strcmp(model, "stream") ? 1 : TRITONSERVER_TXN_DECOUPLED;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(TRITONSERVER_Server*, const char*, int64_t, uint32_t* flags,
                                                            void**) {
  *flags = TRITONSERVER_BATCH_FIRST_DIM;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server*,
                                                     const char* model, int64_t) {
  *request = new TRITONSERVER_InferenceRequest;
  (*request)->model = model;
  ++requests_alive;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request) {
  delete request;
  --requests_alive;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest* request) {
  request->cancelled = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest* request, const char* id) {
  request->id = id;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request, const char* name,
                                                          TRITONSERVER_DataType dtype, const int64_t* shape,
                                                          uint64_t rank) {
  if (request->inputs.count(name)) return refuse("an input twice");
  request->inputs[name] = {dtype, std::vector<int64_t>(shape, shape + rank), {}, false};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(TRITONSERVER_InferenceRequest* request, const char* name) {
  request->inputs[name] = {pytriton::http::dtype::kUint8, {}, {}, true};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest* request,
                                                                 const char* name, const void* base, size_t size,
                                                                 TRITONSERVER_MemoryType, int64_t) {
  auto& input = request->inputs[name];
  input.data.assign(static_cast<const char*>(base), size);
  if (input.is_raw) input.shape = {static_cast<int64_t>(size)};
  uint64_t elements = 1;
  for (const int64_t extent : input.shape) {
    require(extent >= 0, "extents are not negative");
    require(!__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements) || size == 0,
            "shapes do not overflow");
  }
  const size_t item = pytriton::http::bytes_of(input.dtype);
  require(!item || size == item * elements, "inputs have the size of their elements");
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest* request,
                                                                    const char* name) {
  request->outputs.emplace_back(name);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationId(TRITONSERVER_InferenceRequest*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationIdString(TRITONSERVER_InferenceRequest*,
                                                                        const char* id) {
  return std::strlen(id) > 128 ? refuse("too long") : nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(TRITONSERVER_InferenceRequest*, uint32_t) { return nullptr; }
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriorityUInt64(TRITONSERVER_InferenceRequest*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(TRITONSERVER_InferenceRequest*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(TRITONSERVER_InferenceRequest*, const char*,
                                                                    const char*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest*, const char*, int64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(TRITONSERVER_InferenceRequest*, const char*, bool) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(TRITONSERVER_InferenceRequest*, const char*,
                                                                    double) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest* request,
                                                                    TRITONSERVER_ReleaseFn release, void*) {
  request->release = release;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest* request,
                                                                     TRITONSERVER_ResponseAllocator* allocator,
                                                                     void* allocator_user,
                                                                     TRITONSERVER_CompleteFn complete, void* user) {
  request->allocator = allocator;
  request->complete = complete;
  request->user = user;
  request->allocator_user = allocator_user;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server*, TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace*) {
  static std::atomic<unsigned> count{0};
  const unsigned number = ++count;
  if (request->inputs.empty() && !configurations.count(request->model)) return refuse("there is no input");
  ++answering;
  if (has_threads) {
    std::thread(answer, request, number).detach();
  } else {
    answer(request, number);
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response) {
  if (!response->error) return nullptr;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(response->error), TRITONSERVER_ErrorMessage(response->error));
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse* response, const char** name,
                                                        int64_t* version) {
  *name = response->model.c_str();
  *version = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse* response, const char** id) {
  *id = response->id.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse*, uint32_t* count) {
  *count = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse*, uint32_t,
                                                            const char** name, TRITONSERVER_ParameterType* type,
                                                            const void** value) {
  static const int64_t number = 7;
  *name = "p";
  *type = TRITONSERVER_PARAMETER_INT;
  *value = &number;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse* response,
                                                              uint32_t* count) {
  *count = static_cast<uint32_t>(response->outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(TRITONSERVER_InferenceResponse* response, uint32_t index,
                                                         const char** name, TRITONSERVER_DataType* dtype,
                                                         const int64_t** shape, uint64_t* rank, const void** base,
                                                         size_t* size, TRITONSERVER_MemoryType*, int64_t*,
                                                         void** user) {
  const auto& output = response->outputs.at(index);
  *name = output.name.c_str();
  *dtype = output.dtype;
  *shape = output.shape.data();
  *rank = output.shape.size();
  *base = output.base;
  *size = output.size;
  *user = output.user;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputClassificationLabel(TRITONSERVER_InferenceResponse*, uint32_t,
                                                                            size_t value, const char** label) {
  *label = value == 1 ? "one" : nullptr;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response) {
  for (const auto& output : response->outputs)
    response->allocator->free(response->allocator, output.base, output.user, output.size, {}, 0);
  delete response->error;
  delete response;
  --responses_alive;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator** allocator,
                                                      TRITONSERVER_AllocateFn allocate, TRITONSERVER_FreeFn free,
                                                      TRITONSERVER_StartFn) {
  static TRITONSERVER_ResponseAllocator only;
  only = {allocate, free};
  *allocator = &only;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server*, TRITONSERVER_Metrics**) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "metrics are off");
}
TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics*, TRITONSERVER_MetricFormat, const char**,
                                                  size_t*) {
  broken("there are no metrics");
}
TRITONSERVER_Error* TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics*) { broken("there are no metrics"); }
TRITONSERVER_Error* TRITONSERVER_ServerIsLive(TRITONSERVER_Server*, bool* is_live) {
  *is_live = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerIsReady(TRITONSERVER_Server*, bool* is_ready) {
  *is_ready = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server*, const char*, int64_t, bool* is_ready) {
  *is_ready = true;
  return nullptr;
}
struct TRITONSERVER_Parameter;
TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char*, TRITONSERVER_ParameterType, const void*) {
  return nullptr;
}
TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char*, const void*, uint64_t) { return nullptr; }
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter*) {}
TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server*, const char*,
                                                               const TRITONSERVER_Parameter**, uint64_t) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server*, const char*) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server*, const char*) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
TRITONSERVER_Error* TRITONSERVER_ServerMetadata(TRITONSERVER_Server*, TRITONSERVER_Message**) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server*, const char* model, int64_t,
                                                     TRITONSERVER_Message** metadata) {
  if (!configurations.count(model)) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
  *metadata = new TRITONSERVER_Message{R"({"versions": ["1"]})"};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server*, const char*, int64_t,
                                                       TRITONSERVER_Message**) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(TRITONSERVER_Server*, uint32_t, TRITONSERVER_Message**) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "there is none");
}
}
