#include "timer.h"

namespace pytriton {

Timer::~Timer() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Timer::call_at(Clock::time_point moment) noexcept {
  const std::lock_guard lock(mutex_);
  if (threads_.empty() && !start_thread()) return false;
  if (moment >= due_) return true;
  due_ = moment;
  changed_.notify_one();
  return true;
}

bool Timer::start_thread() noexcept {
  try {
    threads_.emplace_back(&Timer::run, this);
    return true;
  } catch (const std::exception&) {  // there are too many threads
    return false;
  }
}

void Timer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++waiting_threads_;
    while (!is_closing_ && Clock::now() < due_) {
      if (due_ == Clock::time_point::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, due_);
      }
    }
    --waiting_threads_;
    if (is_closing_) return;
    due_ = Clock::time_point::max();
    if (!waiting_threads_) start_thread();
    lock.unlock();
    call_();
    lock.lock();
  }
}

}  // namespace pytriton
