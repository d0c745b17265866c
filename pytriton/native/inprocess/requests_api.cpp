// The functions that Python calls, through ctypes; see pytriton/inprocess/native.py. None of them needs the
// interpreter's lock.
#include <dlfcn.h>

#include <cstring>

#include "pending_request.h"

using pytriton::NotificationQueue;
using pytriton::PendingRequest;
using pytriton::RequestHeader;
using pytriton::server_api;
using pytriton::ServerHandle;
using SharedHandle = std::shared_ptr<ServerHandle>;
using SharedQueue = std::shared_ptr<NotificationQueue>;

#pragma GCC visibility push(default)
extern "C" {

// Finds the functions of the server; returns the name of one that it lacks, or nullptr.
const char* pytriton_load(void* server, pytriton::AllocateInPython allocate) {
#define PYTRITON_FIND(name)                                                                            \
  server_api.name = reinterpret_cast<decltype(server_api.name)>(dlsym(server, "TRITONSERVER_" #name)); \
  if (!server_api.name) return "TRITONSERVER_" #name;
  PYTRITON_SERVER_API(PYTRITON_FIND)
#undef PYTRITON_FIND
  PendingRequest::allocate_in_python = allocate;
  return nullptr;
}

// To be called once, after pytriton_load, with a queue that stays until the process ends.
TRITONSERVER_Error* pytriton_notify_released(const SharedQueue* released) {
  PendingRequest::released = released->get();
  return PendingRequest::make_allocator();
}

SharedQueue* pytriton_notification_queue_new() { return new SharedQueue(std::make_shared<NotificationQueue>()); }
void pytriton_notification_queue_delete(const SharedQueue* queue) { delete queue; }
int pytriton_notification_queue_descriptor(const SharedQueue* queue) { return (*queue)->descriptor(); }
size_t pytriton_notification_queue_take(const SharedQueue* queue, uint64_t* numbers, size_t capacity) {
  return (*queue)->take(numbers, capacity);
}

SharedHandle* pytriton_server_handle_new(TRITONSERVER_Server* server) {
  return new SharedHandle(std::make_shared<ServerHandle>(server));
}
bool pytriton_server_handle_enter(const SharedHandle* handle) { return (*handle)->enter(); }
void pytriton_server_handle_leave(const SharedHandle* handle) { (*handle)->leave(); }
bool pytriton_server_handle_close(const SharedHandle* handle) { return (*handle)->close(); }
void pytriton_server_handle_wait_unused(const SharedHandle* handle) { (*handle)->wait_unused(); }
void pytriton_server_handle_delete(const SharedHandle* handle) { delete handle; }

// Makes a request from a RequestHeader and what follows it, and sends it unless kHold is set. Writes `pending` before
// it calls the server.
TRITONSERVER_Error* pytriton_request_new(const SharedHandle* handle, const char* model, const char* text,
                                         PendingRequest** pending, TRITONSERVER_InferenceRequest** request) {
  RequestHeader header{};
  std::memcpy(&header, text, sizeof header);
  auto* made = new PendingRequest(*handle, header);
  *pending = made;
  auto* error = made->make(model, text + sizeof header);
  *request = made->request();
  return error || header.flags & RequestHeader::kHold ? error : made->send();
}
TRITONSERVER_Error* pytriton_request_send(PendingRequest* pending) { return pending->send(); }
char* pytriton_request_next(PendingRequest* pending, int64_t wait_ns) { return pending->next(wait_ns); }
bool pytriton_request_finish(PendingRequest* pending, char* block) { return pending->finish(block); }
void pytriton_request_cancel(PendingRequest* pending) { pending->cancel(); }
bool pytriton_request_drop(PendingRequest* pending) { return pending->drop(); }
void pytriton_free(void* memory) { std::free(memory); }
}
#pragma GCC visibility pop
