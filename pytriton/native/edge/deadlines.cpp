#include "deadlines.h"

#include <chrono>
#include <thread>

#include "clock.h"

namespace pytriton::http {

void Deadlines::begin(Deadline& deadline, std::weak_ptr<Expiring> owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (deadline.is_running_) {
    running_.splice(running_.end(), running_, deadline.place_);
  } else {
    if (unused_.empty()) unused_.emplace_back();
    running_.splice(running_.end(), unused_, unused_.begin());
    deadline.place_ = std::prev(running_.end());
    *deadline.place_ = &deadline;
    deadline.is_running_ = true;
  }
  deadline.owner_ = std::move(owner);
  deadline.at_ = now_ns() + length_ns_;
  if (has_thread_) return;
  std::thread([this] { run(); }).detach();
  has_thread_ = true;
}

void Deadlines::end(Deadline& deadline) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!deadline.is_running_) return;
  deadline.is_running_ = false;
  unused_.splice(unused_.begin(), running_, deadline.place_);
}

void Deadlines::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const int64_t now = now_ns();
    if (!running_.empty() && running_.front()->at_ <= now) {
      Deadline& first = *running_.front();
      first.is_running_ = false;
      unused_.splice(unused_.begin(), running_, running_.begin());
      const auto owner = first.owner_.lock();  // else it is being destroyed
      lock.unlock();
      if (owner) owner->expire(*this);
    } else {
      const int64_t wait_ns = running_.empty() ? length_ns_ : running_.front()->at_ - now;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
    }
    lock.lock();
  }
}

}  // namespace pytriton::http
