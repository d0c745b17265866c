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
  Batch(Calls calls, const Description& model, bool is_repeated, CancelledStreams& cancelled)
      : is_repeated(is_repeated), calls_(std::move(calls)), model_(model), cancelled_(cancelled) {}

  const bool is_repeated;            // whether it is a part of a batch that was handed over before
  std::shared_ptr<Channel> channel;  // that it is sent over; guarded by whoever knows the batch
  bool is_sent = false;              // likewise; until then, it may still be sent over another one
  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  Times times;
  std::vector<size_t> untold;  // of cancelled requests, that the worker does not know of; the watcher's alone

  // As they were handed over; those that are done may be among them.
  const Calls& calls() const { return calls_; }
  uint64_t size() const { return batch_size(calls_, model_); }

  // Sends each its response of a reply. Throws FrameError.
  void send(const Reply& reply, bool last) {
    const std::lock_guard lock(mutex_);
    respond(reply, calls_, model_);
    times.compute_end = now_ns();
    for (const auto& call : calls_) {
      if (call->is_done()) continue;
      if (model_.decoupled && call->is_cancelled()) {
        if (last || call->has_failed()) finish(call);
        continue;
      }
      if (last || call->has_failed()) call->count(times);
      call->send(last);
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    times.compute_end = now_ns();
    for (const auto& call : calls_) finish(call);
  }

  void fail(Code code, const std::string& message) {
    const std::lock_guard lock(mutex_);
    for (const auto& call : calls_) fail_one(call, code, message);
  }

  // The requests that are not done, each as a batch of its own in place of this one.
  std::vector<std::shared_ptr<Batch>> alone() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Batch>> batches;
    for (const auto& call : calls_) {
      if (!call->is_done()) batches.push_back(std::make_shared<Batch>(Calls{call}, model_, true, cancelled_));
    }
    return batches;
  }

  // Answers requests that were cancelled since the last time.
  void drop_cancelled() {
    const std::lock_guard lock(mutex_);
    for (size_t index = 0; index < calls_.size(); ++index) {
      const auto& call = calls_[index];
      if (call->is_done() || !call->is_cancelled()) continue;
      fail_one(call, Code::cancelled, "the request was cancelled");
      untold.push_back(index);
    }
  }

  // Before anybody else knows the batch: forgets requests that were cancelled while they waited.
  void forget_cancelled() {
    drop_cancelled();
    untold.clear();
    Calls rest;
    for (const auto& call : calls_) {
      if (!call->is_done()) rest.push_back(call);
    }
    calls_ = std::move(rest);
  }

  // Before anybody else knows the batch: its frame. Requests that cannot travel are answered and forgotten.
  Outgoing encode() {
    const std::lock_guard lock(mutex_);
    Calls refused;
    Outgoing frame = pytriton::encode(calls_, model_, refused);
    for (const auto& call : refused) {
      call->count(times);
      call->send(true);
    }
    return frame;
  }

  bool is_done() {
    const std::lock_guard lock(mutex_);
    return std::all_of(calls_.begin(), calls_.end(), [](const auto& call) { return call->is_done(); });
  }

 private:
  void finish(const std::shared_ptr<Call>& call) const {
    if (call->is_done()) return;
    call->count(times);
    if (!call->is_cancelled()) return call->end();
    call->stop();
    cancelled_.add(call);
  }

  void fail_one(const std::shared_ptr<Call>& call, Code code, const std::string& message) const {
    if (call->is_done()) return;
    if (model_.decoupled && call->is_cancelled()) return finish(call);
    call->fail(code, message);
    call->count(times);
    call->send(true);
  }

  std::mutex mutex_;
  Calls calls_;
  const Description& model_;
  CancelledStreams& cancelled_;
};

using BatchPointer = std::shared_ptr<Batch>;

}  // namespace pytriton
