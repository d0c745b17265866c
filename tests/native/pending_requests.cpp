// A server answers requests on its own threads, releases them before or after, and refuses some, while callers fetch,
// cancel, drop and wait. Run with sanitizers; the server checks that it is called as its rules say.
//
// Usage: pending_requests <seed> <requests of each caller>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "inprocess/pending_request.h"

using pytriton::NotificationQueue;
using pytriton::PendingRequest;
using pytriton::ServerApi;
using SharedQueue = std::shared_ptr<NotificationQueue>;
using SharedHandle = std::shared_ptr<pytriton::ServerHandle>;

struct TRITONSERVER_Error {
  std::string message;
};
struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_AllocateFn allocate;
  TRITONSERVER_FreeFn free;
};
struct TRITONSERVER_InferenceRequest {
  std::atomic<bool> cancelled{false};
  TRITONSERVER_ReleaseFn release = nullptr;
  TRITONSERVER_CompleteFn complete = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* user = nullptr;
  const void* input = nullptr;
};
struct TRITONSERVER_InferenceResponse {
  TRITONSERVER_ResponseAllocator* allocator;
  void* base;
  void* buffer_user;
};

namespace {

constexpr size_t kBytes = 64;
constexpr int kCallers = 4;
constexpr int kResponses = 3;
constexpr int64_t kWaitNs = 1'000'000;
std::atomic<int> requests_alive{0}, responses_alive{0}, answering{0};
std::atomic<uint64_t> unreleased{0};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void respond(TRITONSERVER_InferenceRequest* request, bool final) {
  auto* response = new TRITONSERVER_InferenceResponse{request->allocator, nullptr, nullptr};
  ++responses_alive;
  TRITONSERVER_MemoryType memory{};
  int64_t device = 0;
  auto* error = request->allocator->allocate(request->allocator, "y", kBytes, memory, 0, request->user, &response->base,
                                             &response->buffer_user, &memory, &device);
  require(!error, "no buffer was made");
  std::memcpy(response->base, request->input, kBytes);
  request->complete(response, final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, request->user);
}

// Another thread's; the request is given back at a random place among the responses.
void answer(TRITONSERVER_InferenceRequest* request, unsigned seed) {
  std::minstd_rand random(seed);
  const unsigned place = random() % 2;
  for (int number = 1; number < kResponses && !request->cancelled; ++number) respond(request, false);
  TRITONSERVER_InferenceRequest copy;  // what is left when the caller has it back
  copy.complete = request->complete;
  copy.user = request->user;
  if (place) {
    request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->user);
    copy.complete(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL, copy.user);
  } else {
    respond(request, true);
    request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->user);
  }
  --answering;
}

}  // namespace

extern "C" {
const char* pytriton_load(void* server, pytriton::AllocateInPython allocate);
TRITONSERVER_Error* pytriton_notify_released(const SharedQueue* released);
SharedQueue* pytriton_notification_queue_new();
void pytriton_notification_queue_delete(const SharedQueue* queue);
size_t pytriton_notification_queue_take(const SharedQueue* queue, uint64_t* numbers, size_t capacity);
SharedHandle* pytriton_server_handle_new(TRITONSERVER_Server* server);
bool pytriton_server_handle_close(const SharedHandle* handle);
void pytriton_server_handle_wait_unused(const SharedHandle* handle);
void pytriton_server_handle_delete(const SharedHandle* handle);
TRITONSERVER_Error* pytriton_request_new(const SharedHandle* handle, const char* model, const char* text,
                                         PendingRequest** pending, TRITONSERVER_InferenceRequest** request);

#pragma GCC visibility push(default)
TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code, const char* message) {
  return new TRITONSERVER_Error{message};
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete error; }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error*) { return TRITONSERVER_ERROR_INTERNAL; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }
TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server*,
                                                     const char*, int64_t) {
  *request = new TRITONSERVER_InferenceRequest;
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
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest*, const char* name,
                                                          TRITONSERVER_DataType, const int64_t* shape, uint64_t rank) {
  require(!std::strcmp(name, "x") && rank == 1 && shape[0] == kBytes, "the input arrived otherwise");
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest* request, const char*,
                                                                 const void* base, size_t, TRITONSERVER_MemoryType,
                                                                 int64_t) {
  request->input = base;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest*, const char*) { return nullptr; }
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest* request,
                                                                    TRITONSERVER_ReleaseFn release, void*) {
  request->release = release;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest* request,
                                                                     TRITONSERVER_ResponseAllocator* allocator, void*,
                                                                     TRITONSERVER_CompleteFn complete, void* user) {
  request->allocator = allocator;
  request->complete = complete;
  request->user = user;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server*, TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace*) {
  static std::atomic<unsigned> count{0};
  const unsigned number = ++count;
  if (number % 10 == 0) return new TRITONSERVER_Error{"refused on purpose"};
  ++answering;
  std::thread(answer, request, number).detach();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse*) { return nullptr; }
TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse*, const char** name,
                                                        int64_t* version) {
  *name = "model";
  *version = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse*, const char** id) {
  *id = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse*, uint32_t* count) {
  *count = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse*, uint32_t, const char**,
                                                            TRITONSERVER_ParameterType*, const void**) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse*, uint32_t* count) {
  *count = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(TRITONSERVER_InferenceResponse* response, uint32_t,
                                                         const char** name, TRITONSERVER_DataType*,
                                                         const int64_t** shape, uint64_t* rank, const void** base,
                                                         size_t* size, TRITONSERVER_MemoryType*, int64_t*,
                                                         void** buffer_user) {
  static const int64_t dims[] = {kBytes};
  *name = "y";
  *shape = dims;
  *rank = 1;
  *base = response->base;
  *size = kBytes;
  *buffer_user = response->buffer_user;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response) {
  response->allocator->free(response->allocator, response->base, response->buffer_user, kBytes, {}, 0);
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
TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(TRITONSERVER_ResponseAllocator*,
                                                                   TRITONSERVER_QueryFn) {
  return nullptr;
}
#pragma GCC visibility pop
}

namespace {

// A request with one input, encoded as Python does.
struct Text {
  pytriton::RequestHeader header;
  const void* base;
  uint64_t size;
  int64_t device;
  int32_t memory, dtype;
  uint32_t rank, name_size;
  int64_t shape;
  char name[8];
};

// Whether it was the last response. Its block names memory that is the caller's now.
bool fetch(const char* block, const std::vector<char>& input) {
  uint64_t size = 0;
  uint32_t flags = 0;
  std::memcpy(&size, block, sizeof size);
  std::memcpy(&flags, block + 16, sizeof flags);
  if (!(flags & pytriton::EncodedResponse::kEmpty)) {
    void* base = nullptr;
    std::memcpy(static_cast<void*>(&base), block + size - sizeof base, sizeof base);
    require(!std::memcmp(base, input.data(), kBytes), "the output is not the input");
    std::free(base);
  }
  return flags & pytriton::EncodedResponse::kFinal;
}

// `inputs` outlive this call, as it does not wait for the requests that it drops.
void call(const SharedHandle* handle, const SharedQueue* notifications, unsigned seed, int requests,
          std::deque<std::vector<char>>& inputs) {
  std::minstd_rand random(seed);
  for (int number = 0; number < requests; ++number) {
    const auto& input = inputs.emplace_back(kBytes, static_cast<char>(random()));
    Text text{};
    text.header.number = 1;
    text.header.wanted_memory = -1;
    text.header.inputs = 1;
    const bool notified = random() % 2;
    if (notified) text.header.notifications = const_cast<SharedQueue*>(notifications);
    text.base = input.data();
    text.size = kBytes;
    text.rank = 1;
    text.name_size = sizeof text.name;
    text.shape = kBytes;
    text.name[0] = 'x';
    PendingRequest* pending = nullptr;
    TRITONSERVER_InferenceRequest* request = nullptr;
    auto* error = pytriton_request_new(handle, "model", reinterpret_cast<char*>(&text), &pending, &request);
    if (error) {
      delete error;
      require(pending->drop(), "a refused request goes on");
      continue;
    }
    std::thread canceller;
    if (random() % 4 == 0) canceller = std::thread([&] { pending->cancel(); });
    const unsigned wanted = random() % (kResponses + 2);  // so many, and it is dropped
    bool final = false, ended = false;
    for (unsigned got = 0; got < wanted && !final;) {
      if (char* block = pending->next(notified ? 0 : kWaitNs)) {
        ++got;
        final = fetch(block, input);
        ended = pending->finish(block);
        require(final || !ended, "a request ended before its last response");
      } else {
        std::this_thread::yield();
      }
    }
    if (canceller.joinable()) canceller.join();
    const bool dropped = pending->drop();
    require(dropped || !ended, "a request that has ended goes on");
    if (!dropped) ++unreleased;
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 3, "usage: pending_requests <seed> <requests of each caller>");
  const auto seed = static_cast<unsigned>(std::stoul(arguments[1]));
  const int requests = std::stoi(arguments[2]);
  const char* missing = pytriton_load(dlopen(nullptr, RTLD_NOW), nullptr);
  require(!missing, "the server lacks a function");
  SharedQueue *released = pytriton_notification_queue_new(), *notifications = pytriton_notification_queue_new();
  pytriton_notify_released(released);
  SharedHandle* handle = pytriton_server_handle_new(nullptr);
  std::vector<std::thread> callers;
  callers.reserve(kCallers);
  std::vector<std::deque<std::vector<char>>> inputs(kCallers);
  for (unsigned number = 0; number < kCallers; ++number) {
    callers.emplace_back(call, handle, notifications, seed * kCallers + number + 1, requests, std::ref(inputs[number]));
  }
  for (auto& caller : callers) caller.join();
  require(pytriton_server_handle_close(handle), "the handle was closed before");
  pytriton_server_handle_wait_unused(handle);
  require(!requests_alive, "a request was not deleted");
  require(!responses_alive, "a response was not deleted");
  PendingRequest* late = nullptr;
  TRITONSERVER_InferenceRequest* none = nullptr;
  Text text{};
  auto* refused = pytriton_request_new(handle, "model", reinterpret_cast<char*>(&text), &late, &none);
  require(refused && late->drop(), "a closed server accepted a request");
  delete refused;
  uint64_t numbers[64], taken_numbers = 0;
  while (const size_t taken = pytriton_notification_queue_take(released, numbers, 64)) taken_numbers += taken;
  require(taken_numbers >= unreleased, "a request was released without a notification");
  while (answering) std::this_thread::yield();
  pytriton_server_handle_delete(handle);
  pytriton_notification_queue_delete(notifications);
  pytriton_notification_queue_delete(released);
  return 0;
}
