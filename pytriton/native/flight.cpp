#include "flight.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "python_call.h"

namespace pytriton {

Calls calls;
Mailbox* Flight::over = nullptr;
AllocateInPython Flight::allocate_in_python = nullptr;
TRITONSERVER_ResponseAllocator* Flight::allocator_ = nullptr;

namespace {

constexpr size_t ALIGNMENT = 64;

// How Python describes an input; followed by its shape, and its name, which ends with a NUL and is padded to 8 bytes.
struct Input {
  const void* base;
  uint64_t size;
  int64_t device;
  TRITONSERVER_MemoryType memory;
  TRITONSERVER_DataType dtype;
  uint32_t rank, name_size;
};

constexpr int64_t SECOND_NS = 1'000'000'000;
constexpr int64_t POLL_NS = 300'000;     // at most, before a thread that waits for a response sleeps
constexpr unsigned TRIAL = 16;           // every so many waits, whatever the waits were lately
thread_local int64_t usual_wait_ns = 0;  // of this thread, lately: there is no use in polling for what comes later
thread_local unsigned waits = 0;
std::atomic_flag is_polling = ATOMIC_FLAG_INIT;  // one thread at a time does: the others leave it the processors

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

}  // namespace

bool Airspace::enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) ++flights_;
  return !closed_;
}

void Airspace::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!--flights_) emptied_.notify_all();
}

void Airspace::close() {
  std::unique_lock<std::mutex> lock(mutex_);
  closed_ = true;
  emptied_.wait(lock, [&] { return !flights_; });
}

Flight::Flight(std::shared_ptr<Airspace> airspace, const Plan& plan)
    : airspace_(std::move(airspace)), plan_(plan), news_(plan.news ? *plan.news : nullptr) {
  sem_init(&waiting_, 0, 0);
}

Flight::~Flight() { sem_destroy(&waiting_); }

TRITONSERVER_Error* Flight::make(const char* model, const char* text) {
  entered_ = airspace_->enter();
  if (!entered_) return calls.ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "the server is not started; call start() first");
  if (auto* error = calls.InferenceRequestNew(&request_, airspace_->server(), model, plan_.version)) return error;
  if (plan_.id_size) {
    if (auto* error = calls.InferenceRequestSetId(request_, text)) return error;
    text += plan_.id_size;
  }
  for (uint32_t index = 0; index < plan_.inputs; ++index) {
    Input input{};
    std::memcpy(&input, text, sizeof input);
    const auto* shape = reinterpret_cast<const int64_t*>(text + sizeof input);
    const auto* name = reinterpret_cast<const char*>(shape + input.rank);
    text = name + input.name_size;
    if (auto* error = calls.InferenceRequestAddInput(request_, name, input.dtype, shape, input.rank)) return error;
    if (auto* error =
            calls.InferenceRequestAppendInputData(request_, name, input.base, input.size, input.memory, input.device)) {
      return error;
    }
  }
  auto* error = calls.InferenceRequestSetReleaseCallback(
      request_,
      [](TRITONSERVER_InferenceRequest*, uint32_t flags, void* user) noexcept {
        if (flags & TRITONSERVER_REQUEST_RELEASE_ALL) static_cast<Flight*>(user)->end();
      },
      this);
  if (error) return error;
  return calls.InferenceRequestSetResponseCallback(
      request_, allocator_, this,
      [](TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) noexcept {
        static_cast<Flight*>(user)->complete(response, flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL);
      },
      this);
}

TRITONSERVER_Error* Flight::send() {
  sent_ = true;  // before the server calls back
  auto* error = calls.ServerInferAsync(airspace_->server(), request_, nullptr);
  if (error) sent_ = false;
  return error;
}

char* Flight::next(int64_t wait_ns) {
  if (!news_ && sem_trywait(&waiting_) && !wait(wait_ns)) return nullptr;
  std::unique_lock<BriefMutex> lock(mutex_);
  if (parcels_.empty()) return nullptr;
  Parcel parcel = std::move(parcels_.front());
  parcels_.pop_front();
  lock.unlock();
  return parcel.hand_over();
}

bool Flight::finish(char* block) {
  const bool final = Parcel::is_final(block);
  std::free(block);
  if (!final) return false;
  const std::lock_guard<BriefMutex> lock(mutex_);
  told_ = true;
  return !holders_;
}

bool Flight::wait(int64_t wait_ns) {
  if (wait_ns <= 0) return false;
  const int64_t begin = now_ns();
  const bool is_worth_it = usual_wait_ns < POLL_NS || !(++waits % TRIAL);
  bool has_news = is_worth_it && poll(begin + std::min(wait_ns, POLL_NS));
  if (has_news) {
    usual_wait_ns = now_ns() - begin;
  } else {
    timespec end{};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + wait_ns) / SECOND_NS;
    end.tv_nsec = (end.tv_nsec + wait_ns) % SECOND_NS;
    has_news = !sem_timedwait(&waiting_, &end);
    usual_wait_ns += (std::min(now_ns() - begin, 2 * POLL_NS) - usual_wait_ns) / 8;
  }
  return has_news;
}

// A thread that sleeps is woken 20 to 100 us late, and so are the server's threads if its processor slept, too.
bool Flight::poll(int64_t end_ns) {
  if (is_polling.test_and_set(std::memory_order_acquire)) return false;
  bool has_news = false;
  while (!(has_news = !sem_trywait(&waiting_)) && now_ns() < end_ns) sched_yield();
  is_polling.clear(std::memory_order_release);
  return has_news;
}

void Flight::cancel() {
  {
    const std::lock_guard<BriefMutex> lock(mutex_);
    if (!holders_) return;
    ++holders_;  // the request stays meanwhile
  }
  calls.ignore(calls.InferenceRequestCancel(request_));
  end();
}

bool Flight::drop() {
  if (!sent_) {
    end();
    end();
  }
  {
    const std::lock_guard<BriefMutex> lock(mutex_);
    dropped_ = told_ = true;
    parcels_.clear();
    if (holders_) return false;
  }
  delete this;
  return true;
}

void Flight::complete(TRITONSERVER_InferenceResponse* response, bool final) {
  Parcel parcel(response, final);
  {
    const std::lock_guard<BriefMutex> lock(mutex_);
    if (!dropped_) parcels_.push_back(std::move(parcel));
  }
  if (news_) {
    news_->put(plan_.number);
  } else {
    sem_post(&waiting_);
  }
  if (final) end();
}

void Flight::end() {
  std::unique_lock<BriefMutex> lock(mutex_);
  if (--holders_) return;
  const bool dropped = dropped_, told = told_;
  const uint64_t number = plan_.number;
  const std::shared_ptr<Airspace> airspace = entered_ ? airspace_ : nullptr;
  TRITONSERVER_InferenceRequest* request = request_;
  lock.unlock();  // from here on, Python may delete this flight
  if (dropped) delete this;
  if (request) calls.ignore(calls.InferenceRequestDelete(request));
  if (told) over->put(number);
  if (airspace) airspace->leave();  // then the server may go
}

TRITONSERVER_Error* Flight::make_allocator() {
  if (auto* error = calls.ResponseAllocatorNew(&allocator_, allocate, free, nullptr)) return error;
  return calls.ResponseAllocatorSetQueryFunction(allocator_, query);
}

TRITONSERVER_Error* Flight::allocate(TRITONSERVER_ResponseAllocator* /*allocator*/, const char* /*tensor*/, size_t size,
                                     TRITONSERVER_MemoryType memory, int64_t device, void* user, void** base,
                                     void** buffer_user, TRITONSERVER_MemoryType* actual_memory,
                                     int64_t* actual_device) noexcept {
  const Plan& plan = static_cast<Flight*>(user)->plan_;
  std::unique_ptr<Buffer> buffer(new (std::nothrow) Buffer);
  if (!buffer) return calls.ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no memory for an output");
  if (plan.flags & Plan::ALLOCATE) {
    const bool wished = plan.wished_memory >= 0;
    Made made{};
    if (auto* error = call_python(allocate_in_python, plan.number, size, wished ? plan.wished_memory : memory,
                                  wished ? plan.wished_device : device, &made)) {
      return error;
    }
    *base = made.base;
    *actual_memory = static_cast<TRITONSERVER_MemoryType>(made.memory);
    *actual_device = made.device;
    buffer->token = made.token;
  } else {
    buffer->memory.reset(std::aligned_alloc(ALIGNMENT, (size / ALIGNMENT + 1) * ALIGNMENT));
    if (!buffer->memory) return calls.ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no memory for an output");
    *base = buffer->memory.get();
    *actual_memory = TRITONSERVER_MEMORY_CPU;
    *actual_device = 0;
  }
  *buffer_user = buffer.release();
  return nullptr;
}

TRITONSERVER_Error* Flight::free(TRITONSERVER_ResponseAllocator* /*allocator*/, void* /*base*/, void* buffer_user,
                                 size_t /*size*/, TRITONSERVER_MemoryType /*memory*/, int64_t /*device*/) noexcept {
  delete static_cast<Buffer*>(buffer_user);
  return nullptr;
}

TRITONSERVER_Error* Flight::query(TRITONSERVER_ResponseAllocator* /*allocator*/, void* user, const char* /*tensor*/,
                                  size_t* /*size*/, TRITONSERVER_MemoryType* memory, int64_t* device) noexcept {
  const Plan& plan = static_cast<Flight*>(user)->plan_;
  if (plan.wished_memory >= 0) {
    *memory = static_cast<TRITONSERVER_MemoryType>(plan.wished_memory);
    *device = plan.wished_device;
  } else if (!(plan.flags & Plan::ALLOCATE)) {
    *memory = TRITONSERVER_MEMORY_CPU;
    *device = 0;
  }
  return nullptr;
}

}  // namespace pytriton
