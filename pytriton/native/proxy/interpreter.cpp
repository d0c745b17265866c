#include "interpreter.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "../frames/python_call.h"

#define PYTRITON_EXPORT extern "C" __attribute__((visibility("default")))

namespace pytriton {
namespace {

struct LocalConnections {
  std::mutex mutex;
  std::unordered_map<std::string, uint64_t> workers;  // by the paths that they answer at
  std::unordered_map<uint64_t, std::weak_ptr<LocalChannel>> channels;
  uint64_t last = 0;
};

LocalConnections& local_connections() {
  static auto* const all = new LocalConnections;  // which threads may need until the process ends
  return *all;
}

std::atomic<const PytritonInterpreter*> interpreter{nullptr};

// Keeps what the interpreter knows of a thread from one call to the next: to make it anew takes as long as all else in
// a call, and variables of the thread would be lost.
class Attachment {
 public:
  void begin(const PytritonInterpreter& python) {
    if (thread_ || python.PyGILState_GetThisThreadState()) return;  // attached, or one of the interpreter's own
    state_ = call_python(python.PyGILState_Ensure);
    thread_ = call_python(python.PyEval_SaveThread);
  }

  ~Attachment() {
    const PytritonInterpreter* python = interpreter;
    if (!thread_ || !python) return;
    call_python(python->PyEval_RestoreThread, thread_);
    call_python(python->PyGILState_Release, state_);
  }

 private:
  void* thread_ = nullptr;
  int state_ = 0;
};
thread_local Attachment attachment;

// Keeps the interpreter's lock.
class Lock {
 public:
  explicit Lock(const PytritonInterpreter& python) : python_(python), state_(call_python(python.PyGILState_Ensure)) {}
  ~Lock() { call_python(python_.PyGILState_Release, state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const PytritonInterpreter& python_;
  const int state_;
};

// One of the interpreter's objects, or null where it could not make it; with its lock.
class Object {
 public:
  Object(const PytritonInterpreter& python, void* object) : python_(python), object_(object) {}
  ~Object() {
    if (object_) call_python(python_.Py_DecRef, object_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void* get() const { return object_; }

 private:
  const PytritonInterpreter& python_;
  void* const object_;
};

std::shared_ptr<LocalChannel> find(uint64_t connection) {
  LocalConnections& all = local_connections();
  const std::lock_guard lock(all.mutex);
  const auto found = all.channels.find(connection);
  return found == all.channels.end() ? nullptr : found->second.lock();
}

void forget(uint64_t connection) {
  LocalConnections& all = local_connections();
  const std::lock_guard lock(all.mutex);
  all.channels.erase(connection);
}

}  // namespace

std::shared_ptr<LocalChannel> connect_locally(const std::string& path) {
  const PytritonInterpreter* python = interpreter;
  if (!python) return nullptr;
  LocalConnections& all = local_connections();
  uint64_t worker = 0, connection = 0;
  std::shared_ptr<LocalChannel> channel;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.workers.find(path);
    if (found == all.workers.end()) return nullptr;
    worker = found->second;
    connection = ++all.last;
    channel = std::make_shared<LocalChannel>(connection);
    all.channels[connection] = channel;
  }
  attachment.begin(*python);
  if (call_python(python->accept, worker, connection)) return channel;
  forget(connection);
  return nullptr;
}

bool deliver(uint64_t connection, std::string_view message, std::string& answer) {
  const PytritonInterpreter* python = interpreter;
  if (!python) return false;
  attachment.begin(*python);
  const Lock lock(*python);
  const Object number(*python, call_python(python->PyLong_FromUnsignedLongLong, connection));
  const Object copy(*python, call_python(python->PyByteArray_FromStringAndSize, message.data(),
                                         static_cast<ptrdiff_t>(message.size())));
  if (number.get() && copy.get()) {
    const Object returned(
        *python, call_python(python->PyObject_CallFunctionObjArgs, python->deliver, number.get(), copy.get(), nullptr));
    char* text = nullptr;
    ptrdiff_t size = 0;
    if (returned.get() && call_python(python->PyBytes_AsStringAndSize, returned.get(), &text, &size) == 0) {
      answer.assign(text, static_cast<size_t>(size));
      return true;
    }
  }
  call_python(python->PyErr_Clear);
  return false;
}

}  // namespace pytriton

using namespace pytriton;

PYTRITON_EXPORT void pytriton_set_interpreter(const PytritonInterpreter* python) { interpreter = python; }

PYTRITON_EXPORT void pytriton_listen(const char* path, uint64_t worker) {
  LocalConnections& all = local_connections();
  const std::lock_guard lock(all.mutex);
  all.workers[path] = worker;
}

PYTRITON_EXPORT void pytriton_stop_listening(const char* path) {
  LocalConnections& all = local_connections();
  const std::lock_guard lock(all.mutex);
  all.workers.erase(path);
}

PYTRITON_EXPORT int pytriton_reply(uint64_t connection, const char* message, uint64_t size, const uint64_t* addresses) {
  const std::shared_ptr<LocalChannel> channel = find(connection);
  return channel && channel->take({message, size}, addresses);
}

PYTRITON_EXPORT void pytriton_disconnect(uint64_t connection) {
  if (const std::shared_ptr<LocalChannel> channel = find(connection)) channel->lose();
  forget(connection);
}

PYTRITON_EXPORT void pytriton_free(void* memory) { std::free(memory); }
