// The requests of one hand-over that are answered later, until each has had its last response. For any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>

#include "cancelled.h"
#include "codec.h"

namespace pytriton {

class Batch {
 public:
  // Hands streams over to `cancelled` whose clients have gone.
  Batch(Requests requests, const Model& model, bool is_repeated, CancelledStreams& cancelled)
      : is_repeated(is_repeated), requests_(std::move(requests)), model_(model), cancelled_(cancelled) {}

  const bool is_repeated;            // whether it is a part of a batch that was handed over before
  std::shared_ptr<Channel> channel;  // that it is sent over; guarded by whoever knows the batch
  bool is_sent = false;              // likewise; until then, it may still be sent over another one
  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  Times times;
  std::vector<size_t>
      unsent_cancellations;  // of cancelled requests, that the worker does not know of; the watcher's alone

  // As they were handed over; those that are done may be among them.
  const Requests& requests() const { return requests_; }
  uint64_t size() const { return batch_size(requests_, model_); }

  // Sends each its response of a reply. Throws FrameError.
  void send(const Reply& reply, bool last) {
    const std::lock_guard lock(mutex_);
    respond(reply, requests_, model_);
    times.compute_end = now_ns();
    for (const auto& request : requests_) {
      if (request->is_done()) continue;
      if (model_.decoupled && request->is_cancelled()) {
        if (last || request->has_failed()) finish(request);
        continue;
      }
      if (last || request->has_failed()) request->count(times);
      request->send(last);
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    times.compute_end = now_ns();
    for (const auto& request : requests_) finish(request);
  }

  void fail(Code code, const std::string& message) {
    const std::lock_guard lock(mutex_);
    for (const auto& request : requests_) fail_one(request, code, message);
  }

  // The requests that are not done, each as a batch of its own in place of this one.
  std::vector<std::shared_ptr<Batch>> split() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Batch>> batches;
    for (const auto& request : requests_) {
      if (!request->is_done()) batches.push_back(std::make_shared<Batch>(Requests{request}, model_, true, cancelled_));
    }
    return batches;
  }

  // Answers requests that were cancelled since the last time.
  void drop_cancelled() {
    const std::lock_guard lock(mutex_);
    for (size_t index = 0; index < requests_.size(); ++index) {
      const auto& request = requests_[index];
      if (request->is_done() || !request->is_cancelled()) continue;
      fail_one(request, Code::cancelled, "the request was cancelled");
      unsent_cancellations.push_back(index);
    }
  }

  // Before anybody else knows the batch: forgets requests that were cancelled while they waited.
  void remove_cancelled() {
    drop_cancelled();
    unsent_cancellations.clear();
    Requests rest;
    for (const auto& request : requests_) {
      if (!request->is_done()) rest.push_back(request);
    }
    requests_ = std::move(rest);
  }

  // Before anybody else knows the batch: its frame. Requests that cannot travel are answered and forgotten.
  Outgoing encode() {
    const std::lock_guard lock(mutex_);
    Requests refused;
    Outgoing frame = pytriton::encode(requests_, model_, refused);
    for (const auto& request : refused) {
      request->count(times);
      request->send(true);
    }
    return frame;
  }

  bool is_done() {
    const std::lock_guard lock(mutex_);
    return std::all_of(requests_.begin(), requests_.end(), [](const auto& request) { return request->is_done(); });
  }

 private:
  void finish(const std::shared_ptr<Request>& request) const {
    if (request->is_done()) return;
    request->count(times);
    if (!request->is_cancelled()) return request->end();
    request->stop();
    cancelled_.add(request);
  }

  void fail_one(const std::shared_ptr<Request>& request, Code code, const std::string& message) const {
    if (request->is_done()) return;
    if (model_.decoupled && request->is_cancelled()) return finish(request);
    request->fail(code, message);
    request->count(times);
    request->send(true);
  }

  std::mutex mutex_;
  Requests requests_;
  const Model& model_;
  CancelledStreams& cancelled_;
};

using BatchPointer = std::shared_ptr<Batch>;

}  // namespace pytriton
