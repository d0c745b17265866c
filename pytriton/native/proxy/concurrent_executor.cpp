#include "concurrent_executor.h"

#include <algorithm>
#include <utility>

#include "../frames/failure.h"

namespace pytriton {

namespace {
using Clock = std::chrono::steady_clock;
constexpr double kLongWaitS = 0.01;  // for a slot, in which a request may have been cancelled
constexpr double kWatchS = 0.1, kWatchShare = 0.1;

double seconds_since(Clock::time_point moment) { return std::chrono::duration<double>(Clock::now() - moment).count(); }
}  // namespace

ConcurrentExecutor::ConcurrentExecutor(std::unique_ptr<WorkerConnection> connection, const Model& model,
                                       TRITONBACKEND_ModelInstance* instance, int64_t limit)
    : worker_(std::move(connection)),
      model_(model),
      instance_(instance),
      cancelled_(!worker_->channel()->is_local()),
      limit_(limit),
      slots_(limit),
      current_(worker_->channel()) {
  worker_->deliver_to(*this);
  start_reader(current_);
  try {
    repeater_ = std::thread(&ConcurrentExecutor::repeat, this);
    watcher_ = std::thread(&ConcurrentExecutor::watch, this);
  } catch (...) {  // there are too many threads
    close();
    throw;
  }
}

ConcurrentExecutor::~ConcurrentExecutor() { close(); }

void ConcurrentExecutor::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    current_->say_goodbye();
  }
  can_repeat_.notify_all();
  closed_.notify_all();
  if (repeater_.joinable()) repeater_.join();
  if (watcher_.joinable()) watcher_.join();
  for (Reading& reading : readers_) reading.thread.join();
  worker_->close();
  constexpr char kReason[] = "the server let the model go";
  fail_batches(nullptr, kReason);
  for (const BatchPointer& batch : failed_) batch->fail(Code::unavailable, gone(kReason));
}

void ConcurrentExecutor::execute(Requests requests) {
  const auto batch = std::make_shared<Batch>(std::move(requests), model_, false, cancelled_);
  if (waited_ || !model_.has_sequences) batch->remove_cancelled();
  if (batch->is_done()) return;
  take_slot();
  submit(batch);
  waited_ = wait_for_slot() > kLongWaitS;
}

// What comes next waits in the server, where it can be merged and prioritised.
double ConcurrentExecutor::wait_for_slot() {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  slot_free_.wait(lock, [this] { return slots_ > 0; });
  return seconds_since(start);
}

void ConcurrentExecutor::take_slot() {
  std::unique_lock lock(mutex_);
  slot_free_.wait(lock, [this] { return slots_ > 0; });
  --slots_;
}

void ConcurrentExecutor::add_slots(int64_t count) {
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    slots_ += count;
    has_failed = !failed_.empty();
  }
  slot_free_.notify_all();
  if (has_failed) can_repeat_.notify_all();
}

// Batches that are in flight beyond a lower limit are answered before others are sent.
void ConcurrentExecutor::set_limit(int64_t limit) {
  int64_t added = 0;
  {
    const std::lock_guard lock(mutex_);
    added = limit - std::exchange(limit_, limit);
  }
  add_slots(added);
}

void ConcurrentExecutor::submit(const BatchPointer& batch) {
  Outgoing frame;
  bool is_known = false;
  try {
    hand_over(batch, frame, is_known);
  } catch (const PeerGone& error) {
    fail_unsent(batch, is_known ? &frame : nullptr, error.code, gone(error.what()));
  } catch (const Failure& error) {
    fail_unsent(batch, is_known ? &frame : nullptr, error.code, error.what());
  } catch (const std::exception& error) {
    fail_unsent(batch, is_known ? &frame : nullptr, Code::internal, error.what());
  }
}

void ConcurrentExecutor::hand_over(const BatchPointer& batch, Outgoing& frame, bool& is_known) {
  std::shared_ptr<Channel> channel;
  {
    const std::lock_guard sending(sending_);
    frame = batch->encode();
    if (batch->requests().empty()) {
      add_slots(1);
      return;
    }
    batch->times.compute_start = now_ns();
    {
      const std::lock_guard lock(mutex_);
      do worker_->number(frame);
      while (!batches_.emplace(frame.number, batch).second);  // a long stream may have a number for ever
      is_known = true;
    }
    const std::shared_ptr<Channel> before = worker_->channel();
    channel = worker_->send(frame, [&](const std::shared_ptr<Channel>& next) {
      const std::lock_guard lock(mutex_);
      batch->channel = next;
    });
    if (channel != before) {
      const std::lock_guard lock(mutex_);
      current_ = channel;
      if (closing_) channel->say_goodbye();
    }
    if (channel != before) start_reader(channel);
  }
  {
    const std::lock_guard lock(mutex_);
    batch->is_sent = true;
  }
  if (channel->is_shut()) fail_batches(channel.get(), "it ended");
}

void ConcurrentExecutor::fail_unsent(const BatchPointer& batch, const Outgoing* known, Code code,
                                     const std::string& message) {
  if (known) {
    remove(known->number);
  } else {
    add_slots(1);
  }
  batch->fail(code, message);
}

void ConcurrentExecutor::repeat() {
  std::unique_lock lock(mutex_);
  while (true) {
    can_repeat_.wait(lock, [this] { return closing_ || (!failed_.empty() && slots_ > 0); });
    if (closing_) return;
    BatchPointer batch = std::move(failed_.front());
    failed_.pop_front();
    --slots_;
    lock.unlock();
    submit(batch);
    batch.reset();
    lock.lock();
  }
}

void ConcurrentExecutor::watch() {
  std::chrono::duration<double> pause(kWatchS);
  std::unique_lock lock(mutex_);
  while (!closed_.wait_for(lock, pause, [this] { return closing_; })) {
    lock.unlock();
    const Clock::time_point start = Clock::now();
    cancelled_.end_due();
    drop_cancelled_failed();
    drop_cancelled_in_flight();
    pause = std::chrono::duration<double>(std::max(kWatchS, seconds_since(start) / kWatchShare));
    lock.lock();
  }
}

// Answers requests that wait to be sent again: for a slot, which a worker that does not answer never frees.
void ConcurrentExecutor::drop_cancelled_failed() {
  std::deque<BatchPointer> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(failed_);
  }
  if (waiting.empty()) return;
  const auto is_dropped = [](const BatchPointer& batch) {
    batch->drop_cancelled();
    return batch->is_done();
  };
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), is_dropped), waiting.end());
  {
    const std::lock_guard lock(mutex_);
    failed_.insert(failed_.begin(), waiting.begin(), waiting.end());
  }
  can_repeat_.notify_all();
}

// Answers requests of batches that were sent, and tells the worker.
void ConcurrentExecutor::drop_cancelled_in_flight() {
  std::vector<std::pair<uint32_t, BatchPointer>> old;
  std::shared_ptr<Channel> current;
  {
    const std::lock_guard lock(mutex_);
    current = current_;
    for (const auto& [number, batch] : batches_) {
      if (batch->is_sent && seconds_since(batch->since) > kWatchS) old.emplace_back(number, batch);
    }
  }
  try {
    current->release(false, true);
    for (const auto& [number, batch] : old) {
      batch->drop_cancelled();
      const bool is_done = batch->is_done();
      if (batch->unsent_cancellations.empty() && !is_done) continue;
      Outgoing frame = cancellation(number, batch->requests().size(), batch->unsent_cancellations, is_done);
      if (batch->channel->send_at_once(frame)) batch->unsent_cancellations.clear();
    }
  } catch (const PeerGone&) {  // the reader sees it too
  } catch (const std::exception& error) {
    log_warning(std::string("a worker could not be told of cancelled requests: ") + error.what());
  }
}

}  // namespace pytriton
