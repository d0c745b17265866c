// How often a client may do what costs the server more than it costs the client.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../edge/clock.h"

namespace pytriton::http {

class Allowance {
 public:
  Allowance(int64_t burst, int64_t per_second) : burst_(burst), per_second_(per_second), left_(burst) {}

  // False: it is used up.
  bool take(int64_t now) {
    const int64_t gained = std::min((now - since_) / kMillisecond_ns, kMost_ms) * per_second_ / 1000;
    if (gained > 0) {
      left_ = std::min(burst_, left_ + gained);
      since_ = now;
    }
    if (!left_) return false;
    --left_;
    return true;
  }

 private:
  static constexpr int64_t kMost_ms = 1'000'000;

  const int64_t burst_, per_second_;
  int64_t left_, since_ = 0;
};

}  // namespace pytriton::http
