// The last requests that came, in a file that outlives this process (pytriton/server/crashes.py reads it): after a
// crash, whoever launched the server sees which were in flight.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../frames/spinning_mutex.h"

namespace pytriton::http {

class RecentRequests {
 public:
  // Throws Failure if the file cannot be mapped.
  explicit RecentRequests(const std::string& path);
  ~RecentRequests();
  RecentRequests(const RecentRequests&) = delete;
  RecentRequests& operator=(const RecentRequests&) = delete;

  // On any thread: a request has come, and is to be answered. Returns its number.
  uint64_t begin(std::string_view peer, std::string_view method, std::string_view path, uint64_t body_bytes);
  void end(uint64_t number);  // it is answered

 private:
  struct Entry {
    std::atomic<uint64_t> number;  // from 1 on; 0: none
    uint64_t body_bytes;
    std::atomic<uint32_t> is_in_flight;
    uint16_t peer_size, target_size;
    std::array<char, 48> peer;
    std::array<char, 184> target;
  };
  static_assert(sizeof(Entry) == 256);
  static constexpr size_t kEntries = 512;  // later requests take the places of earlier ones

  Entry& entry(uint64_t number) const { return entries_[number % kEntries]; }

  Entry* entries_ = nullptr;
  SpinningMutex mutex_;  // of the following, and of what begin() writes
  uint64_t next_ = 1;
};

}  // namespace pytriton::http
