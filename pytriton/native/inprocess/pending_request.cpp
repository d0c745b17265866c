#include "pending_request.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "../frames/arrivals.h"
#include "../frames/python_call.h"

namespace pytriton {

ServerApi server_api;
NotificationQueue* PendingRequest::released = nullptr;
AllocateInPython PendingRequest::allocate_in_python = nullptr;
TRITONSERVER_ResponseAllocator* PendingRequest::allocator_ = nullptr;

namespace {

constexpr size_t kAlignment = 64;

// An input as Python encodes it. Its shape and its name follow; the name ends with a NUL and is padded to 8 bytes.
struct InputHeader {
  const void* base;
  uint64_t size;
  int64_t device;
  TRITONSERVER_MemoryType memory;
  TRITONSERVER_DataType dtype;
  uint32_t rank, name_size;
};

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPollNs = 300'000;     // at most, before a thread that waits for a response sleeps
constexpr unsigned kTrialInterval = 16;  // one of this many waits polls, however long the last ones took
thread_local int64_t usual_wait_ns = 0;  // of this thread, lately: a response that takes longer is not polled for
thread_local unsigned waits = 0;
std::atomic_flag is_polling = ATOMIC_FLAG_INIT;  // one thread at a time polls; the others leave the processors to it

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

}  // namespace

bool ServerHandle::enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) ++uses_;
  return !closed_;
}

void ServerHandle::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!--uses_) unused_.notify_all();
}

bool ServerHandle::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !std::exchange(closed_, true);
}

void ServerHandle::wait_unused() {
  std::unique_lock<std::mutex> lock(mutex_);
  unused_.wait(lock, [&] { return !uses_; });
}

PendingRequest::PendingRequest(std::shared_ptr<ServerHandle> handle, const RequestHeader& header)
    : handle_(std::move(handle)),
      header_(header),
      notifications_(header.notifications ? *header.notifications : nullptr) {
  sem_init(&available_, 0, 0);
}

PendingRequest::~PendingRequest() { sem_destroy(&available_); }

TRITONSERVER_Error* PendingRequest::make(const char* model, const char* text) {
  entered_ = handle_->enter();
  if (!entered_)
    return server_api.ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "the server is not started; call start() first");
  if (auto* error = server_api.InferenceRequestNew(&request_, handle_->server(), model, header_.version)) return error;
  arrivals_ = find_arrivals(model);
  if (header_.id_size) {
    if (auto* error = server_api.InferenceRequestSetId(request_, text)) return error;
    text += header_.id_size;
  }
  for (uint32_t index = 0; index < header_.inputs; ++index) {
    InputHeader input{};
    std::memcpy(&input, text, sizeof input);
    const auto* shape = reinterpret_cast<const int64_t*>(text + sizeof input);
    const auto* name = reinterpret_cast<const char*>(shape + input.rank);
    text = name + input.name_size;
    if (auto* error = server_api.InferenceRequestAddInput(request_, name, input.dtype, shape, input.rank)) return error;
    if (auto* error = server_api.InferenceRequestAppendInputData(request_, name, input.base, input.size, input.memory,
                                                                 input.device)) {
      return error;
    }
  }
  auto* error = server_api.InferenceRequestSetReleaseCallback(
      request_,
      [](TRITONSERVER_InferenceRequest*, uint32_t flags, void* user) noexcept {
        if (flags & TRITONSERVER_REQUEST_RELEASE_ALL) static_cast<PendingRequest*>(user)->release();
      },
      this);
  if (error) return error;
  return server_api.InferenceRequestSetResponseCallback(
      request_, allocator_, this,
      [](TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) noexcept {
        static_cast<PendingRequest*>(user)->complete(response, flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL);
      },
      this);
}

TRITONSERVER_Error* PendingRequest::send() {
  sent_ = true;  // before the server answers
  Arrivals* const arrivals = arrivals_;
  if (arrivals) arrivals->announce();
  auto* error = server_api.ServerInferAsync(handle_->server(), request_, nullptr);
  if (!error) return nullptr;
  if (arrivals) arrivals->withdraw();
  sent_ = false;
  return error;
}

char* PendingRequest::next(int64_t wait_ns) {
  if (!notifications_ && sem_trywait(&available_) && !wait(wait_ns)) return nullptr;
  std::unique_lock<SpinningMutex> lock(mutex_);
  if (responses_.empty()) return nullptr;
  EncodedResponse response = std::move(responses_.front());
  responses_.pop_front();
  lock.unlock();
  return response.release();
}

bool PendingRequest::finish(char* block) {
  const bool final = EncodedResponse::is_final(block);
  std::free(block);
  if (!final) return false;
  const std::lock_guard<SpinningMutex> lock(mutex_);
  asked_ = true;
  return !holders_;
}

bool PendingRequest::wait(int64_t wait_ns) {
  if (wait_ns <= 0) return false;
  const int64_t begin = now_ns();
  const bool is_worth_it = usual_wait_ns < kPollNs || !(++waits % kTrialInterval);
  bool has_response = is_worth_it && poll(begin + std::min(wait_ns, kPollNs));
  if (has_response) {
    usual_wait_ns = now_ns() - begin;
  } else {
    timespec end{};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + wait_ns) / kSecondNs;
    end.tv_nsec = (end.tv_nsec + wait_ns) % kSecondNs;
    has_response = !sem_timedwait(&available_, &end);
    usual_wait_ns += (std::min(now_ns() - begin, 2 * kPollNs) - usual_wait_ns) / 8;
  }
  return has_response;
}

// A thread that sleeps wakes 20 to 100 us late, and so do the server's threads if the processor slept as well.
bool PendingRequest::poll(int64_t end_ns) {
  if (is_polling.test_and_set(std::memory_order_acquire)) return false;
  bool has_response = false;
  while (!(has_response = !sem_trywait(&available_)) && now_ns() < end_ns) sched_yield();
  is_polling.clear(std::memory_order_release);
  return has_response;
}

void PendingRequest::cancel() {
  {
    const std::lock_guard<SpinningMutex> lock(mutex_);
    if (!holders_) return;
    ++holders_;  // the server's request stays meanwhile
  }
  server_api.ignore(server_api.InferenceRequestCancel(request_));
  release();
}

bool PendingRequest::drop() {
  if (!sent_) {
    release();
    release();
  }
  {
    const std::lock_guard<SpinningMutex> lock(mutex_);
    dropped_ = asked_ = true;
    responses_.clear();
    if (holders_) return false;
  }
  delete this;
  return true;
}

void PendingRequest::complete(TRITONSERVER_InferenceResponse* response, bool final) {
  EncodedResponse encoded(response, final);
  {
    const std::lock_guard<SpinningMutex> lock(mutex_);
    if (!dropped_) responses_.push_back(std::move(encoded));
  }
  if (notifications_) {
    notifications_->put(header_.number);
  } else {
    sem_post(&available_);
  }
  if (final) release();
}

void PendingRequest::release() {
  std::unique_lock<SpinningMutex> lock(mutex_);
  if (--holders_) return;
  const bool dropped = dropped_, asked = asked_;
  const uint64_t number = header_.number;
  const std::shared_ptr<ServerHandle> handle = entered_ ? handle_ : nullptr;
  TRITONSERVER_InferenceRequest* request = request_;
  lock.unlock();  // from here on, Python may delete this object
  if (dropped) delete this;
  if (request) server_api.ignore(server_api.InferenceRequestDelete(request));
  if (asked) released->put(number);
  if (handle) handle->leave();  // from here on, Python may delete the server
}

TRITONSERVER_Error* PendingRequest::make_allocator() {
  if (auto* error = server_api.ResponseAllocatorNew(&allocator_, allocate, free, nullptr)) return error;
  return server_api.ResponseAllocatorSetQueryFunction(allocator_, query);
}

TRITONSERVER_Error* PendingRequest::allocate(TRITONSERVER_ResponseAllocator* /*allocator*/, const char* /*tensor*/,
                                             size_t size, TRITONSERVER_MemoryType memory, int64_t device, void* user,
                                             void** base, void** buffer_user, TRITONSERVER_MemoryType* actual_memory,
                                             int64_t* actual_device) noexcept {
  const RequestHeader& header = static_cast<PendingRequest*>(user)->header_;
  std::unique_ptr<OutputBuffer> buffer(new (std::nothrow) OutputBuffer);
  if (!buffer) return server_api.ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no memory for an output");
  if (header.flags & RequestHeader::kAllocate) {
    const bool wanted = header.wanted_memory >= 0;
    AllocatedBuffer made{};
    if (auto* error = call_python(allocate_in_python, header.number, size, wanted ? header.wanted_memory : memory,
                                  wanted ? header.wanted_device : device, &made)) {
      return error;
    }
    *base = made.base;
    *actual_memory = static_cast<TRITONSERVER_MemoryType>(made.memory);
    *actual_device = made.device;
    buffer->token = made.token;
  } else {
    buffer->memory.reset(std::aligned_alloc(kAlignment, (size / kAlignment + 1) * kAlignment));
    if (!buffer->memory) return server_api.ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no memory for an output");
    *base = buffer->memory.get();
    *actual_memory = TRITONSERVER_MEMORY_CPU;
    *actual_device = 0;
  }
  *buffer_user = buffer.release();
  return nullptr;
}

TRITONSERVER_Error* PendingRequest::free(TRITONSERVER_ResponseAllocator* /*allocator*/, void* /*base*/,
                                         void* buffer_user, size_t /*size*/, TRITONSERVER_MemoryType /*memory*/,
                                         int64_t /*device*/) noexcept {
  delete static_cast<OutputBuffer*>(buffer_user);
  return nullptr;
}

TRITONSERVER_Error* PendingRequest::query(TRITONSERVER_ResponseAllocator* /*allocator*/, void* user,
                                          const char* /*tensor*/, size_t* /*size*/, TRITONSERVER_MemoryType* memory,
                                          int64_t* device) noexcept {
  const RequestHeader& header = static_cast<PendingRequest*>(user)->header_;
  if (header.wanted_memory >= 0) {
    *memory = static_cast<TRITONSERVER_MemoryType>(header.wanted_memory);
    *device = header.wanted_device;
  } else if (!(header.flags & RequestHeader::kAllocate)) {
    *memory = TRITONSERVER_MEMORY_CPU;
    *device = 0;
  }
  return nullptr;
}

}  // namespace pytriton
