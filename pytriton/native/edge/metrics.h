// Counters of the edge, as a page in Prometheus' format, which it makes itself: it is read when no Python answers, too.
// What shared_counters.h counts is on the app's page.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace pytriton::http {

enum class Route {
  infer,
  generate,
  generate_stream,
  predict,
  triton,
  application,
  own,
  grpc_infer,
  grpc_stream,
  grpc_other,
  none,
  control
};
constexpr size_t kRoutes = 11;  // that are counted: all but the last
const char* name_of(Route route);

class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  void subtract(uint64_t count = 1) { value_.fetch_sub(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Of a histogram: the first one whose bound is no less, or the one beyond all bounds.
inline size_t bucket_of(const std::vector<int64_t>& bounds, int64_t value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

// What the page tells beside the counters of the loops.
struct ServerFigures {
  uint64_t restarts, buffered_bytes;
};

// Those of one loop; the page has their sums.
class Metrics {
 public:
  explicit Metrics(const std::vector<int64_t>& bounds_ns)
      : bounds_ns_(bounds_ns), durations_(kRoutes * (bounds_ns.size() + 1)) {}

  // `status`: of HTTP, or of gRPC.
  void count(Route route, int status, int64_t duration_ns, uint64_t sent);

  Counter received;   // bytes of bodies and heads
  Counter in_flight;  // requests
  Counter accepted, open, refused, timed_out, given_way;

  static std::string page(const std::vector<const Metrics*>& loops, const ServerFigures& figures);

 private:
  static constexpr int kStatuses = 600;
  std::array<std::array<Counter, kStatuses>, kRoutes> requests_;
  const std::vector<int64_t>& bounds_ns_;
  std::vector<Counter> durations_;  // of the buckets of each route
  std::array<Counter, kRoutes> duration_sum_us_;
  Counter sent_;
};

}  // namespace pytriton::http
