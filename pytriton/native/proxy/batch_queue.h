// The requests of a model that wait, and which of them are the next batch. It knows no worker, no thread and no clock;
// scheduler.h says when a batch leaves.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "latency_target.h"

namespace pytriton {

class Request;

// Why a batch left.
enum class Reason : uint8_t { idle, full, target, preferred, shape, delay, repeated };
constexpr std::array<const char*, 7> kReasons = {"worker_idle",   "full",  "latency_target", "preferred_size",
                                                 "shape_changed", "delay", "repeated"};

struct BatchPolicy {
  uint64_t max_rows = 1;
  std::vector<uint64_t> preferred_rows;
  std::chrono::microseconds delay{0};     // of the first request, until the batch leaves
  std::chrono::milliseconds patience{5};  // of a batch, with requests that were announced
  uint64_t max_cost = UINT64_MAX;         // of a batch; below, requests of similar costs are merged
  std::chrono::microseconds target{0};    // for a share of the requests, from when they come to their answers
  double share = 1;
};

struct QueuedRequest {
  std::shared_ptr<Request> request;
  uint64_t rows = 1;
  uint64_t row_cost = 1;     // of the most costly row
  uint64_t row_bytes = 0;    // if requests of other shapes may be merged with it
  std::string shapes;        // requests are merged only if theirs are equal
  bool is_repeated = false;  // its batch failed; it is sent in a batch of its own
  bool is_unread = false;    // no worker has read its batch; it is merged only with others of that
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

using RequestPointers = std::vector<std::shared_ptr<Request>>;

class BatchQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using IsCancelled = std::function<bool(const Request&)>;

  // The first requests of the queue, as a batch.
  struct Choice {
    size_t requests = 0;
    BatchSize size;
    Reason reason = Reason::idle;
    bool can_wait = false;  // others may still become part of it
  };

  BatchQueue(BatchPolicy policy, IsCancelled is_cancelled);

  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  const QueuedRequest& first() const { return queue_.front(); }
  const BatchSize& waiting() const { return waiting_; }  // if each request is a batch

  void put_last(QueuedRequest request) { put(queue_.end(), std::move(request)); }
  void put_first(QueuedRequest request) { put(queue_.begin(), std::move(request)); }
  QueuedRequest take_first();

  Choice choose(TimePoint now, const LatencyTarget* target);
  // Moves all requests whose clients have gone, if there are any among the chosen ones.
  void take_cancelled(const Choice& choice, RequestPointers& cancelled);
  // Moves requests that would be late even if they left now, until only the chosen ones are left: late answers to
  // those that wait for one batch harm nobody, but if more wait, they would all be late in turn.
  void take_late(const Choice& choice, TimePoint now, const LatencyTarget& target, RequestPointers& late);

 private:
  using Queue = std::deque<QueuedRequest>;

  void put(const Queue::iterator& place, QueuedRequest request);
  void subtract(const QueuedRequest& request);
  void bring_similar_forward();

  const BatchPolicy policy_;
  const uint64_t max_preferred_rows_;
  const IsCancelled is_cancelled_;
  Queue queue_;
  BatchSize waiting_;
};

BatchSize size_of(const QueuedRequest& request);
double seconds(std::chrono::steady_clock::duration time);

}  // namespace pytriton
