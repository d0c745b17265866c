// Memory for what a connection receives.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>

#include "exchange.h"

namespace pytriton::http {

// Counts what all buffers hold.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { clear(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  static size_t total() { return total_.load(std::memory_order_relaxed); }

  char* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

  // Keeps what it holds, and has kPadding more bytes. False if there is no memory.
  bool reserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    char* const larger = static_cast<char*>(std::realloc(data_.get(), capacity + kPadding));
    if (!larger) return false;
    static_cast<void>(data_.release());  // realloc() has freed it
    data_.reset(larger);
    total_.fetch_add(capacity - capacity_, std::memory_order_relaxed);
    capacity_ = capacity;
    return true;
  }

  void clear() {
    data_.reset();
    total_.fetch_sub(std::exchange(capacity_, 0), std::memory_order_relaxed);
  }

 private:
  struct Deleter {
    void operator()(char* memory) const { std::free(memory); }
  };
  inline static std::atomic<size_t> total_{0};
  std::unique_ptr<char, Deleter> data_;
  size_t capacity_ = 0;
};

}  // namespace pytriton::http
