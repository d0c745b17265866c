// Counters of the front end, as a page in Prometheus' format.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace pytriton::http {

enum class Route { infer, generate, generate_stream, predict, triton, application, own, none, control };
constexpr size_t kRoutes = 8;  // that are counted: all but the last
const char* name_of(Route route);

class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  void subtract(uint64_t count = 1) { value_.fetch_sub(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Those of one loop; the page has their sums.
class Metrics {
 public:
  static constexpr std::array<int64_t, 14> kBounds_us = {100,       250,       500,        1'000,      2'500,
                                                         5'000,     10'000,    25'000,     100'000,    250'000,
                                                         1'000'000, 5'000'000, 30'000'000, 120'000'000};

  void count(Route route, int status, int64_t duration_ns, uint64_t sent);

  Counter received;   // bytes of bodies and heads
  Counter in_flight;  // requests
  Counter accepted, open, refused, timed_out;

  static std::string page(const Metrics* const* all, size_t count);

 private:
  static constexpr int kStatuses = 600;
  std::array<std::array<Counter, kStatuses>, kRoutes> requests_;
  std::array<std::array<Counter, kBounds_us.size() + 1>, kRoutes> durations_;
  std::array<Counter, kRoutes> duration_sum_us_;
  Counter sent_;
};

}  // namespace pytriton::http
