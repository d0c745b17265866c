// What handles the frames of workers in this process, on the workers' threads, until it is closed.
#pragma once

#include <condition_variable>
#include <mutex>

#include "channel.h"

namespace pytriton {

class ReplyHandler {
 public:
  virtual ~ReplyHandler() = default;
  virtual void handle(Channel& channel, const Reply& reply) noexcept = 0;
  // The worker has gone, and sends nothing more.
  virtual void worker_gone(Channel& channel) noexcept = 0;
};

class ReplyHandlerGuard {
 public:
  explicit ReplyHandlerGuard(ReplyHandler& handler) : handler_(&handler) {}

  // Runs the body with the handler; false if that was closed. Any number of threads at once.
  template <typename Body>
  bool with(Body body) {
    ReplyHandler* handler = enter();
    if (!handler) return false;
    body(*handler);  // throws nothing
    leave();
    return true;
  }

  // Waits until no thread runs a body any more. Not for a thread that does.
  void close() {
    std::unique_lock lock(mutex_);
    handler_ = nullptr;
    idle_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  ReplyHandler* enter() {
    const std::lock_guard lock(mutex_);
    if (handler_) ++active_;
    return handler_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--active_ == 0) idle_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  ReplyHandler* handler_;
  size_t active_ = 0;
};

}  // namespace pytriton
