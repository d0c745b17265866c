// Calls a function when it is time to, on a thread of its own. A thread whose call takes long does not delay the next
// call: another thread waits for that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pytriton {

class Timer {
 public:
  using Clock = std::chrono::steady_clock;

  // The function is for any number of threads at once, and throws nothing.
  explicit Timer(std::function<void()> call) : call_(std::move(call)) {}
  // Waits for calls that have begun.
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Has the function called at a time, unless it will be earlier. False if there can be no thread.
  bool call_at(Clock::time_point moment) noexcept;

 private:
  bool start_thread() noexcept;
  void run();

  const std::function<void()> call_;
  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  Clock::time_point due_ = Clock::time_point::max();
  bool is_closing_ = false;
  std::vector<std::thread> threads_;  // started with the first call_at()
  size_t waiting_threads_ = 0;
};

}  // namespace pytriton
