// A request that a server in the user's process works on, and its responses until Python takes them.
#pragma once

#include <semaphore.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "../frames/server_api.h"
#include "../frames/spinning_mutex.h"
#include "encoded_response.h"
#include "notification_queue.h"

namespace pytriton {

class Arrivals;

// A server, and the number of requests and of calls from Python that use it. Python and the requests own it together.
class ServerHandle {
 public:
  explicit ServerHandle(TRITONSERVER_Server* server) : server_(server) {}
  TRITONSERVER_Server* server() const { return server_; }
  // Counts one more use; false if the handle is closed.
  bool enter();
  void leave();
  // Refuses further uses; false if it was closed already.
  bool close();
  // Waits until nothing uses the server.
  void wait_unused();

 private:
  TRITONSERVER_Server* server_;
  std::mutex mutex_;
  std::condition_variable unused_;
  size_t uses_ = 0;
  bool closed_ = false;
};

// The result of an allocator in Python.
struct AllocatedBuffer {
  void* base;
  uint64_t token;
  int32_t memory;
  int32_t unused;
  int64_t device;
};
using AllocateInPython = TRITONSERVER_Error* (*)(uint64_t number, size_t size, int32_t memory, int64_t device,
                                                 AllocatedBuffer*);

// The begin of a request as pytriton/inprocess/messages.py encodes it; the request's id, if it has one, and the inputs
// follow.
struct RequestHeader {
  static constexpr uint32_t kHold = 1, kAllocate = 2;

  int64_t version;
  uint64_t number;                                    // identifies the request in Python
  std::shared_ptr<NotificationQueue>* notifications;  // gets the number with each response; nullptr: next() waits
  int64_t wanted_device;
  int32_t wanted_memory;  // -1: any
  uint32_t flags;
  uint32_t inputs;
  uint32_t id_size;  // with its NUL and padding to a multiple of 8 bytes
};

class PendingRequest {
 public:
  PendingRequest(std::shared_ptr<ServerHandle> handle, const RequestHeader& header);
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  // Makes the server's request from what follows the header.
  TRITONSERVER_Error* make(const char* model, const char* text);
  TRITONSERVER_Error* send();
  // Returns the block of the next response; nullptr if none came within the time, or a signal interrupted the wait.
  char* next(int64_t wait_ns);
  // Frees a block after Python has read it. Returns true if it was the last one and the server has released the
  // request. If the server has not released it by then, `released` gets the number when it does.
  bool finish(char* block);
  void cancel();
  // Python needs the request no more. Returns true if the server has released it; otherwise `released` gets the number
  // when it does.
  bool drop();

  TRITONSERVER_InferenceRequest* request() const { return request_; }

  static NotificationQueue* released;  // requests that the server releases after Python has asked for the last time
  static AllocateInPython allocate_in_python;
  static TRITONSERVER_Error* make_allocator();

 private:
  ~PendingRequest();
  bool wait(int64_t wait_ns);
  bool poll(int64_t end_ns);
  void complete(TRITONSERVER_InferenceResponse* response, bool final);
  void release();

  static TRITONSERVER_ResponseAllocator* allocator_;
  static TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t, TRITONSERVER_MemoryType,
                                      int64_t, void*, void**, void**, TRITONSERVER_MemoryType*, int64_t*) noexcept;
  static TRITONSERVER_Error* free(TRITONSERVER_ResponseAllocator*, void*, void*, size_t, TRITONSERVER_MemoryType,
                                  int64_t) noexcept;
  static TRITONSERVER_Error* query(TRITONSERVER_ResponseAllocator*, void*, const char*, size_t*,
                                   TRITONSERVER_MemoryType*, int64_t*) noexcept;

  const std::shared_ptr<ServerHandle> handle_;
  const RequestHeader header_;
  const std::shared_ptr<NotificationQueue> notifications_;
  TRITONSERVER_InferenceRequest* request_ = nullptr;
  sem_t available_{};  // the number of responses; unlike a condition variable, it lets signals interrupt a wait
  SpinningMutex mutex_;
  std::deque<EncodedResponse> responses_;
  int holders_ = 2;  // the server holds the request, and the last response; cancel() holds it for a moment
  bool entered_ = false, sent_ = false, dropped_ = false, asked_ = false;
  Arrivals* arrivals_ = nullptr;  // of the model; null if nobody asks for them
};

}  // namespace pytriton
