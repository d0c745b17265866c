// Who takes what workers in this process send, on the workers' threads, as long as he is there.
#pragma once

#include <condition_variable>
#include <mutex>

#include "channel.h"

namespace pytriton {

class ReplyHandler {
 public:
  virtual ~ReplyHandler() = default;
  virtual void take(Channel& channel, const Reply& reply) noexcept = 0;
  // The worker has gone, and sends nothing more.
  virtual void lose(Channel& channel) noexcept = 0;
};

class ReplyHandlerGuard {
 public:
  explicit ReplyHandlerGuard(ReplyHandler& taker) : taker_(&taker) {}

  // Has something done with the taker; false if he has gone. Any number of threads at once.
  template <typename Body>
  bool with(Body body) {
    ReplyHandler* taker = enter();
    if (!taker) return false;
    body(*taker);  // throws nothing
    leave();
    return true;
  }

  // Waits until nobody has anything to do with the taker any more. Not for a thread that has.
  void close() {
    std::unique_lock lock(mutex_);
    taker_ = nullptr;
    left_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  ReplyHandler* enter() {
    const std::lock_guard lock(mutex_);
    if (taker_) ++inside_;
    return taker_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) left_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable left_;
  ReplyHandler* taker_;
  size_t inside_ = 0;
};

}  // namespace pytriton
