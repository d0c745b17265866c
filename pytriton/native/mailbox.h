// Numbers of flights that have news, for a thread that waits on a file descriptor: an event loop's, or one of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pytriton {

class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // An eventfd: to be read, and then the box emptied, when it is readable.
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
