// Numbers of requests that something happened to, for a thread or an event loop that waits on a file descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pytriton {

class NotificationQueue {
 public:
  NotificationQueue();
  ~NotificationQueue();
  NotificationQueue(const NotificationQueue&) = delete;
  NotificationQueue& operator=(const NotificationQueue&) = delete;

  // An eventfd. When it is readable, read it first, then empty the queue.
  int descriptor() const { return descriptor_; }
  void put(uint64_t number);
  // Moves the oldest numbers out; returns how many.
  size_t take(uint64_t* numbers, size_t capacity);

 private:
  int descriptor_;
  std::mutex mutex_;
  std::vector<uint64_t> numbers_;
};

}  // namespace pytriton
