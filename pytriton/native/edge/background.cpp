#include "background.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace pytriton::http {

namespace {

constexpr unsigned kMostThreads = 2;      // of a queue
constexpr unsigned kMostLoads = 8;        // of models, at once
constexpr size_t kLongReading = 2 << 20;  // bytes of JSON that take about ten milliseconds

using Step = std::function<bool()>;

// Addresses have turns, and the work of one address has turns among itself, so nobody waits for more than a step of
// each of the others.
class FairQueue {
 public:
  FairQueue(unsigned most_threads) : most_threads_(most_threads) {}

  void add(std::string address, Step step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    put(std::move(address), std::move(step));
    if (size_ > idle_ && threads_ < most_threads_) {
      ++threads_;
      std::thread([this] { run(); }).detach();
    }
    changed_.notify_one();
  }

 private:
  void put(std::string&& address, Step&& step) {
    std::deque<Step>& steps = steps_[address];
    if (steps.empty()) turns_.push_back(std::move(address));
    steps.push_back(std::move(step));
    ++size_;
  }

  // The first of the address whose turn it is, which is then the last one.
  std::pair<std::string, Step> take() {
    std::string address = std::move(turns_.front());
    turns_.pop_front();
    const auto found = steps_.find(address);
    Step step = std::move(found->second.front());
    found->second.pop_front();
    --size_;
    if (found->second.empty()) {
      steps_.erase(found);
    } else {
      turns_.push_back(address);
    }
    return {std::move(address), std::move(step)};
  }

  [[noreturn]] void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return size_ > 0; });
      --idle_;
      auto [address, step] = take();
      lock.unlock();
      const bool has_more = step();
      if (!has_more) step = nullptr;  // what it holds
      lock.lock();
      if (has_more) put(std::move(address), std::move(step));
    }
  }

  const unsigned most_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::deque<Step>> steps_;  // by address
  std::deque<std::string> turns_;                  // addresses that have steps
  size_t size_ = 0, idle_ = 0;                     // steps; threads that wait
  unsigned threads_ = 0;
};

// Queues with threads of their own: the kernel shares the processors between them, whatever is done in the others.
enum Kind : unsigned { kShort, kLong, kWaiting, kLoading };
FairQueue& queue(Kind kind) {
  static const unsigned most = std::clamp(std::thread::hardware_concurrency() / 2, 1U, kMostThreads);
  // Never deleted: their threads end with the process
  static auto* const queues = new FairQueue[4]{{most}, {most}, {most}, {kMostLoads}};
  return queues[kind];
}

void run(Kind kind, std::string_view address, std::function<void()>&& task) {
  queue(kind).add(std::string(address), [task = std::move(task)] {
    task();
    return false;
  });
}

}  // namespace

void run_in_background(std::string_view address, size_t bytes, std::function<void()> task) {
  run(bytes > kLongReading ? kLong : kShort, address, std::move(task));
}

void run_waiting(std::string_view address, std::function<void()> task) { run(kWaiting, address, std::move(task)); }

void run_loading(std::string_view address, std::function<void()> task) { run(kLoading, address, std::move(task)); }

void run_in_steps(std::string_view address, std::function<bool()> step) {
  queue(kShort).add(std::string(address), std::move(step));
}

}  // namespace pytriton::http
