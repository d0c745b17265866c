// Memory for what a connection receives.
#pragma once

#include <cstdlib>
#include <memory>

#include "exchange.h"

namespace pytriton::http {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { clear(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

  // Keeps what it holds, and has kPadding more bytes. False if there is no memory.
  bool reserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    char* const larger = static_cast<char*>(std::realloc(data_.get(), capacity + kPadding));
    if (!larger) return false;
    static_cast<void>(data_.release());  // realloc() has freed it
    data_.reset(larger);
    capacity_ = capacity;
    return true;
  }

  // Keeps the first bytes alone.
  void shrink(size_t capacity) {
    if (capacity >= capacity_) return;
    if (char* const smaller = static_cast<char*>(std::realloc(data_.get(), capacity + kPadding))) {
      static_cast<void>(data_.release());
      data_.reset(smaller);
    }
    capacity_ = capacity;
  }

  void clear() {
    data_.reset();
    capacity_ = 0;
  }

 private:
  struct Deleter {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Deleter> data_;
  size_t capacity_ = 0;
};

}  // namespace pytriton::http
