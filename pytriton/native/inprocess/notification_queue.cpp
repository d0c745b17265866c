#include "notification_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace pytriton {

NotificationQueue::NotificationQueue() : descriptor_(eventfd(0, EFD_CLOEXEC)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "no eventfd");
}

NotificationQueue::~NotificationQueue() { close(descriptor_); }

void NotificationQueue::put(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.push_back(number);
  if (numbers_.size() == 1) eventfd_write(descriptor_, 1);  // otherwise it is readable still
}

size_t NotificationQueue::take(uint64_t* numbers, size_t capacity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t count = std::min(capacity, numbers_.size());
  const auto end = numbers_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(numbers_.begin(), end, numbers);
  numbers_.erase(numbers_.begin(), end);
  return count;
}

}  // namespace pytriton
