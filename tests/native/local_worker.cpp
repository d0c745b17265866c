#include "local_worker.h"

#include <cstdarg>
#include <mutex>

#include "frames/failure.h"
#include "proxy/interpreter.h"
#include "server.h"

namespace {

using namespace pytriton;

constexpr uint8_t kMore = 4;
constexpr size_t kFlagsByte = 5;
constexpr uint64_t kManyReplies = 1'000;
constexpr auto kPause = std::chrono::milliseconds(20);

std::recursive_mutex interpreter_lock;
thread_local int attachments = 0;                                 // of the thread to the interpreter
std::map<uint64_t, LocalWorker*> workers, workers_by_connection;  // with the lock

int accept(uint64_t worker, uint64_t connection) {
  const std::lock_guard lock(interpreter_lock);
  const auto found = workers.find(worker);
  if (found == workers.end() || !found->second->accept(connection)) return 0;
  workers_by_connection[connection] = found->second;
  return 1;
}

struct Object {
  uint64_t number = 0;
  std::string text;
  bool is_bytes = false;
};
thread_local bool has_error = false;

void* new_number(unsigned long long number) { return new Object{number, {}, false}; }
void* new_bytearray(const char* text, ptrdiff_t size) {
  return new Object{0, {text, static_cast<size_t>(size)}, false};
}
void forget(void* object) { delete static_cast<Object*>(object); }
void clear_error() { has_error = false; }

int bytes_of(void* object, char** text, ptrdiff_t* size) {
  auto& given = *static_cast<Object*>(object);
  has_error = !given.is_bytes;
  if (has_error) return -1;
  *text = given.text.data();
  *size = static_cast<ptrdiff_t>(given.text.size());
  return 0;
}

void* call(void* callable, ...) {  // NOLINT(modernize-avoid-variadic-functions): as the interpreter's
  if (has_error) broken("an error of the interpreter stays");
  if (attachments < 2) broken("a thread stays attached to the interpreter between calls");
  va_list given;
  va_start(given, callable);
  const auto* number = va_arg(given, const Object*);
  const auto* message = va_arg(given, const Object*);
  if (va_arg(given, void*)) broken("two arguments and a null");
  va_end(given);
  const auto found = workers_by_connection.find(number->number);
  if (found == workers_by_connection.end()) return nullptr;  // as at an exception
  std::string answer;
  const bool taken = found->second->deliver(number->number, message->text, answer);
  return new Object{0, answer, taken};
}

int ensure() {
  interpreter_lock.lock();
  return ++attachments;
}
void release(int number) {
  if (number != attachments--) broken("attachments end in the order in which they began, last first");
  interpreter_lock.unlock();
}
void* thread_state() { return attachments ? &attachments : nullptr; }
void* save_thread() {
  interpreter_lock.unlock();
  return &attachments;
}
void restore_thread(void*) { interpreter_lock.lock(); }

const PytritonInterpreter kInterpreter{accept,       nullptr,     new_number,    new_bytearray, call,
                                       bytes_of,     clear_error, forget,        ensure,        release,
                                       thread_state, save_thread, restore_thread};

bool hand_over(uint64_t connection, std::string_view message, const uint64_t* address) {
  interpreter_lock.unlock();
  const bool taken = pytriton_reply(connection, message.data(), message.size(), address);
  interpreter_lock.lock();
  return taken;
}

uint64_t new_worker_number() {
  static uint64_t workers_so_far = 0;
  if (!workers_so_far) {
    client_lock = {[] { interpreter_lock.lock(); }, [] { interpreter_lock.unlock(); }};
    pytriton_set_interpreter(&kInterpreter);
  }
  return ++workers_so_far;
}

}  // namespace

LocalWorker::LocalWorker(const std::string& path, bool streams, uint64_t seed)
    : path_(path), streams_(streams), random_(seed) {
  const std::lock_guard lock(interpreter_lock);
  const uint64_t number = new_worker_number();
  workers[number] = this;
  pytriton_listen(path.c_str(), number);
  if (streams) thread_ = std::thread(&LocalWorker::serve, this);
}

LocalWorker::~LocalWorker() {
  pytriton_stop_listening(path_.c_str());
  std::unique_lock lock(interpreter_lock);
  is_closing_ = true;
  changed_.notify_all();
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  for (const auto& [connection, is_open] : connections_) {
    if (is_open) pytriton_disconnect(connection);
  }
  lock.lock();
  for (auto known = workers.begin(); known != workers.end();)
    known = known->second == this ? workers.erase(known) : std::next(known);
  for (const auto& [connection, is_open] : connections_) workers_by_connection.erase(connection);
}

bool LocalWorker::accept(uint64_t connection) {
  if (is_closing_) return false;
  connections_[connection] = true;
  return true;
}

bool LocalWorker::deliver(uint64_t connection, std::string_view message, std::string& answer) {
  const auto found = connections_.find(connection);
  if (is_closing_ || found == connections_.end() || !found->second) return false;
  if (message.empty()) return true;
  Frame frame;
  unpack(message, frame);
  if (frame.kind == Kind::cancel) {
    for (Task& task : tasks_) {
      if (task.connection != connection || task.number != frame.number) continue;
      task.hangs = false;
      task.replies = 1;
    }
  }
  if (frame.kind != Kind::request) return true;
  if (up_to(random_, 200) == 0) {  // before its memory is the worker's
    found->second = false;
    refused_.push_back(connection);
    changed_.notify_all();
    return false;
  }
  Task task = read(connection, frame);
  if (streams_) {
    if (up_to(random_, 3) == 0) task.replies += up_to(random_, 20);
    if (up_to(random_, 30) == 0) task.replies += kManyReplies;
    task.hangs = up_to(random_, 100) == 0;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  } else {
    if (up_to(random_, 10) == 0) ask(task);
    if (task.values.size() <= kInlineLimitBytes && up_to(random_, 3) == 0) {
      answer = echo(task);
    } else if (up_to(random_, 100)) {
      reply(task);
    }
  }
  return true;
}

LocalWorker::Task LocalWorker::read(uint64_t connection, const Frame& frame) {
  if (frame.tensors.size() != 1 || !frame.has_rows) broken("equal requests travel as one tensor");
  const Placed& tensor = frame.tensors[0];
  Task task{connection, frame.number, frame.requests, frame.rows, {}, {}};
  for (unsigned axis = 0; axis < tensor.rank; ++axis)
    task.shape.push_back(static_cast<int64_t>(frame.shape(tensor)[axis]));
  if (frame.region == kNoRegion) {
    task.values = frame.data.substr(tensor.offset, tensor.size);
  } else {
    auto* memory = reinterpret_cast<char*>(frame.region);  // NOLINT(performance-no-int-to-ptr)
    task.values.assign(memory + tensor.offset, tensor.size);
    pytriton_free(memory);
  }
  return task;
}

void LocalWorker::ask(const Task& task) {
  Outgoing frame;
  frame.kind = Kind::ask;
  frame.number = task.number;
  frame.requests = task.requests;
  send(task, frame, false);
}

// A message with the right reply.
std::string LocalWorker::echo(const Task& task) {
  Outgoing frame = response_to(task);
  std::vector<char> message;
  pack(frame, message);
  return {message.data(), message.size()};
}

Outgoing LocalWorker::response_to(const Task& task) {
  Outgoing frame;
  frame.kind = Kind::response;
  frame.number = task.number;
  frame.requests = task.requests;
  frame.has_rows = true;
  frame.rows = task.rows;
  frame.tensors.push_back(
      {0, kWholeBatch, 11, task.shape, task.values.size(), {{task.values.data(), task.values.size()}}});
  return frame;
}

// Some reply; whether the batch may get another one.
bool LocalWorker::reply(Task& task) {
  const uint64_t chance = up_to(random_, task.replies > 1 ? 1'500 : 150);
  if (chance == 0 && streams_) {
    leave(task.connection);
    return false;
  }
  if (chance == 1) {
    hand_over(task.connection, "nonsense", nullptr);
    return false;
  }
  bool more = streams_ && --task.replies > 0;
  Outgoing frame;
  frame.number = task.number;
  frame.requests = task.requests;
  if (chance < 12) {
    const bool isolate = up_to(random_, 1);
    frame.kind = Kind::error;
    frame.metadata = std::string(R"({"message":"no","code":"INTERNAL","isolate":)") + (isolate ? "true}" : "false}");
    if (chance == 11) frame.metadata = "{";  // no error
    more = false;
  } else if (chance < 18 && streams_) {
    frame.kind = Kind::end;
    more = false;
  } else {
    frame = response_to(task);
    if (chance < 24) frame.metadata = R"({"errors":{"0":{"message":"no","code":"CANCELLED"}}})";
  }
  return send(task, frame, more) && more;
}

bool LocalWorker::send(const Task& task, Outgoing& frame, bool more) {
  const bool by_address = !frame.tensors.empty() && (task.values.size() > kInlineLimitBytes || task.number % 2);
  if (by_address) frame.region = 0;
  std::vector<char> message;
  pack(frame, message);
  if (more) message[kFlagsByte] = static_cast<char>(message[kFlagsByte] | kMore);
  const auto address = reinterpret_cast<uint64_t>(task.values.data());
  return hand_over(task.connection, {message.data(), message.size()}, by_address ? &address : nullptr);
}

void LocalWorker::leave(uint64_t connection) {
  connections_[connection] = false;
  interpreter_lock.unlock();
  pytriton_disconnect(connection);
  interpreter_lock.lock();
}

void LocalWorker::serve() {
  attachments = 1;  // one of the interpreter's own threads
  std::unique_lock lock(interpreter_lock);
  while (!is_closing_) {
    if (!refused_.empty()) {
      const uint64_t connection = refused_.back();
      refused_.pop_back();
      leave(connection);
      continue;
    }
    std::vector<size_t> ready;
    for (size_t index = 0; index < tasks_.size(); ++index) {
      if (!tasks_[index].hangs) ready.push_back(index);
    }
    if (ready.empty()) {
      changed_.wait_for(lock, kPause);
      continue;
    }
    const auto place = tasks_.begin() + static_cast<ptrdiff_t>(ready[up_to(random_, ready.size() - 1)]);
    Task task = std::move(*place);
    tasks_.erase(place);
    if (reply(task)) tasks_.push_back(std::move(task));
  }
}
