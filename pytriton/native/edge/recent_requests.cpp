#include "recent_requests.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "../frames/descriptor.h"
#include "../frames/failure.h"

namespace pytriton::http {

namespace {

// What fits of a text; returns how much that was.
template <size_t room>
uint16_t copy(std::array<char, room>& to, size_t at, std::string_view text) {
  const size_t size = std::min(text.size(), room - at);
  std::memcpy(to.data() + at, text.data(), size);
  return static_cast<uint16_t>(at + size);
}

}  // namespace

RecentRequests::RecentRequests(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const memory =
      file ? ::mmap(nullptr, kEntries * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  if (memory == MAP_FAILED) throw Failure(Code::unavailable, path + " cannot be mapped: " + std::strerror(errno));
  entries_ = static_cast<Entry*>(memory);
}

RecentRequests::~RecentRequests() { ::munmap(entries_, kEntries * sizeof(Entry)); }

uint64_t RecentRequests::begin(std::string_view peer, std::string_view method, std::string_view path,
                               uint64_t body_bytes) {
  const std::lock_guard<SpinningMutex> lock(mutex_);
  const uint64_t number = next_++;
  Entry& taken = entry(number);
  taken.body_bytes = body_bytes;
  taken.peer_size = copy(taken.peer, 0, peer);
  taken.target_size = copy(taken.target, copy(taken.target, copy(taken.target, 0, method), " "), path);
  taken.number.store(number, std::memory_order_relaxed);
  taken.is_in_flight.store(1, std::memory_order_release);
  return number;
}

void RecentRequests::end(uint64_t number) {
  Entry& taken = entry(number);
  if (taken.number.load(std::memory_order_relaxed) == number) taken.is_in_flight.store(0, std::memory_order_release);
}

}  // namespace pytriton::http
