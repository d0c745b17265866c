// Whether a client still sends, or takes, bytes.
#pragma once

#include <cstdint>

#include "clock.h"

namespace pytriton::http {

// What is asked for: a byte within each time-out, and in each as many as a least rate makes.
class Progress {
 public:
  void begin(int64_t now, int64_t bytes) {
    moved_at_ = window_at_ = now;
    bytes_ = window_bytes_ = bytes;
  }

  // To be called every second with the bytes so far.
  bool is_stalled(int64_t now, int64_t bytes, int64_t timeout_s, int64_t least_bytes_per_s) {
    if (bytes != bytes_) {
      bytes_ = bytes;
      moved_at_ = now;
    }
    if (now - moved_at_ > timeout_s * kSecond_ns) return true;
    if (now - window_at_ < timeout_s * kSecond_ns) return false;
    const bool is_slow = bytes - window_bytes_ < least_bytes_per_s * timeout_s;
    window_at_ = now;
    window_bytes_ = bytes;
    return is_slow;
  }

 private:
  int64_t moved_at_ = 0, window_at_ = 0;
  int64_t bytes_ = 0, window_bytes_ = 0;
};

}  // namespace pytriton::http
