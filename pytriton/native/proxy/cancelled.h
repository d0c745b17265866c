// Streams of a ConcurrentExecutor whose clients have gone, until the server may be told that no response follows. For
// any thread.
//
// Triton 2.51 crashes, or keeps the model for ever, if it learns that while its gRPC endpoint still handles the
// cancellation: it finishes the stream twice. That endpoint needs a millisecond, and does not say when it is done.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

#include "request.h"

namespace pytriton {

class CancelledStreams {
 public:
  // Without an endpoint, in the user's process, streams end at once.
  explicit CancelledStreams(bool has_endpoint) : delay_(has_endpoint ? 50 : 0) {}
  ~CancelledStreams() {
    for (const auto& [due, request] : streams_) {
      std::this_thread::sleep_until(due);
      request->end();
    }
  }
  CancelledStreams(const CancelledStreams&) = delete;
  CancelledStreams& operator=(const CancelledStreams&) = delete;

  // Ends a stream some time later.
  void add(std::shared_ptr<Request> request) {
    if (!delay_.count()) return request->end();
    const std::lock_guard lock(mutex_);
    streams_.emplace_back(Clock::now() + delay_, std::move(request));
  }

  // Ends those whose time has come.
  void end_due() {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    for (; !streams_.empty() && streams_.front().first <= now; streams_.pop_front()) streams_.front().second->end();
  }

 private:
  using Clock = std::chrono::steady_clock;

  const std::chrono::milliseconds delay_;
  std::mutex mutex_;
  std::deque<std::pair<Clock::time_point, std::shared_ptr<Request>>> streams_;
};

}  // namespace pytriton
