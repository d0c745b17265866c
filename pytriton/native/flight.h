// A request on its way through a server in the user's process, and its responses until Python takes them.
#pragma once

#include <semaphore.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "brief_mutex.h"
#include "calls.h"
#include "mailbox.h"
#include "parcel.h"

namespace pytriton {

// A server, and how many flights still use it. Lives as long as Python and the flights refer to it.
class Airspace {
 public:
  explicit Airspace(TRITONSERVER_Server* server) : server_(server) {}
  TRITONSERVER_Server* server() const { return server_; }
  // Whether it was still open.
  bool enter();
  void leave();
  // Lets no more flights in, and waits until none uses the server.
  void close();

 private:
  TRITONSERVER_Server* server_;
  std::mutex mutex_;
  std::condition_variable emptied_;
  size_t flights_ = 0;
  bool closed_ = false;
};

// What Python's allocator made.
struct Made {
  void* base;
  uint64_t token;
  int32_t memory;
  int32_t unused;
  int64_t device;
};
using AllocateInPython = TRITONSERVER_Error* (*)(uint64_t number, size_t size, int32_t memory, int64_t device, Made*);

// What Python asks for, followed by the request's id, if it has one, and the inputs.
struct Plan {
  static constexpr uint32_t HOLD = 1, ALLOCATE = 2;

  int64_t version;
  uint64_t number;                 // by which Python knows the flight
  std::shared_ptr<Mailbox>* news;  // gets the number with each response; otherwise next() waits
  int64_t wished_device;
  int32_t wished_memory;  // -1: none
  uint32_t flags;
  uint32_t inputs;
  uint32_t id_size;  // with its NUL, and bytes up to a multiple of 8
};

class Flight {
 public:
  Flight(std::shared_ptr<Airspace> airspace, const Plan& plan);
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  // Makes a request to a model, with what follows the plan.
  TRITONSERVER_Error* make(const char* model, const char* text);
  TRITONSERVER_Error* send();
  // The next response's block. Without one: nullptr, after so long, or when a signal interrupts the wait.
  char* next(int64_t wait_ns);
  // Frees a block that was read. True if it was the last, and the server has no use for the request any more; if it
  // still has after the last one, `over` gets the number later.
  bool finish(char* block);
  void cancel();
  // Python has no use for it any more; whether the server has none, either. Otherwise `over` gets the number then.
  bool drop();

  TRITONSERVER_InferenceRequest* request() const { return request_; }

  static Mailbox* over;  // gets the numbers of flights that end after Python has turned away from them
  static AllocateInPython allocate_in_python;
  static TRITONSERVER_Error* make_allocator();

 private:
  ~Flight();
  bool wait(int64_t wait_ns);
  bool poll(int64_t end_ns);
  void complete(TRITONSERVER_InferenceResponse* response, bool final);
  void end();

  static TRITONSERVER_ResponseAllocator* allocator_;
  static TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t, TRITONSERVER_MemoryType,
                                      int64_t, void*, void**, void**, TRITONSERVER_MemoryType*, int64_t*) noexcept;
  static TRITONSERVER_Error* free(TRITONSERVER_ResponseAllocator*, void*, void*, size_t, TRITONSERVER_MemoryType,
                                  int64_t) noexcept;
  static TRITONSERVER_Error* query(TRITONSERVER_ResponseAllocator*, void*, const char*, size_t*,
                                   TRITONSERVER_MemoryType*, int64_t*) noexcept;

  const std::shared_ptr<Airspace> airspace_;
  const Plan plan_;
  const std::shared_ptr<Mailbox> news_;
  TRITONSERVER_InferenceRequest* request_ = nullptr;
  sem_t waiting_{};  // as many as there are parcels; unlike a condition, it lets signals interrupt a wait
  BriefMutex mutex_;
  std::deque<Parcel> parcels_;
  int holders_ = 2;  // of the request: the server has it, and will send the last response; later also cancel()
  bool entered_ = false, sent_ = false, dropped_ = false, told_ = false;
};

}  // namespace pytriton
