#include "background.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace pytriton::http {

namespace {

constexpr unsigned kMostThreads = 4;

class Background {
 public:
  void add(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > idle_ && threads_ < std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads)) {
      ++threads_;
      std::thread([this] { run(); }).detach();
    }
    changed_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  unsigned threads_ = 0;
  size_t idle_ = 0;  // threads that wait
};

}  // namespace

void run_in_background(std::function<void()> task) {
  static auto* const background = new Background;  // never deleted: its threads end with the process
  background->add(std::move(task));
}

}  // namespace pytriton::http
