#include "concurrent_executor.h"

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
  changed_.notify_all();
  to_watch_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  for (Reading& reading : readers_) reading.thread.join();
  worker_->close();
  fail_batches(nullptr, "the server let the model go");
}

void ConcurrentExecutor::execute(Requests requests) {
  const auto batch = std::make_shared<Batch>(std::move(requests), model_, false, cancelled_);
  if (waited_ || !model_.has_sequences) batch->forget_cancelled();
  if (batch->is_done()) return;
  take_slot();
  submit(batch);
  waited_ = wait_for_slot() > kLongWaitS;
}

// What comes next waits in the server, where it can be merged and prioritised.
double ConcurrentExecutor::wait_for_slot() {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return slots_ > 0; });
  return seconds_since(start);
}

void ConcurrentExecutor::take_slot() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return slots_ > 0; });
  --slots_;
}

// As take_slot, but notices cancelled requests meanwhile.
void ConcurrentExecutor::take_slot_watching() {
  const auto pause = std::chrono::duration<double>(kWatchS);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return closing_ || slots_ > 0; })) {
    lock.unlock();
    drop_cancelled();
    lock.lock();
  }
  --slots_;
}

void ConcurrentExecutor::release_slot() {
  {
    const std::lock_guard lock(mutex_);
    ++slots_;
  }
  changed_.notify_all();
}

// Batches that are in flight beyond a lower limit are answered before others are sent.
void ConcurrentExecutor::set_limit(int64_t limit) {
  {
    const std::lock_guard lock(mutex_);
    slots_ += limit - limit_;
    limit_ = limit;
  }
  changed_.notify_all();
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
      release_slot();
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
    forget(known->number);
  } else {
    release_slot();
  }
  batch->fail(code, message);
}

void ConcurrentExecutor::watch() {
  double pause_s = kWatchS;
  std::unique_lock lock(mutex_);
  while (!closing_) {
    to_watch_.wait_for(lock, std::chrono::duration<double>(pause_s), [this] { return closing_ || !failed_.empty(); });
    const std::deque<BatchPointer> failed = std::move(failed_);
    failed_.clear();
    lock.unlock();
    for (const BatchPointer& batch : failed) {
      for (const BatchPointer& alone : batch->alone()) {
        take_slot_watching();
        submit(alone);
      }
    }
    if (failed.empty()) pause_s = drop_cancelled();
    lock.lock();
  }
}

// Tells the worker of batches that nobody waits for any more.
double ConcurrentExecutor::drop_cancelled() {
  const Clock::time_point start = Clock::now();
  cancelled_.end_due();
  std::vector<std::pair<uint32_t, BatchPointer>> old;
  std::shared_ptr<Channel> current;
  {
    const std::lock_guard lock(mutex_);
    current = current_;
    for (const auto& [number, batch] : batches_) {
      const bool is_old = std::chrono::duration<double>(start - batch->since).count() > kWatchS;
      if (is_old && batch->is_sent) old.emplace_back(number, batch);
    }
  }
  try {
    current->release(false, true);
    for (const auto& [number, batch] : old) {
      batch->drop_cancelled();
      const bool is_done = batch->is_done();
      if (batch->untold.empty() && !is_done) continue;
      Outgoing frame = cancellation(number, batch->requests().size(), batch->untold, is_done);
      if (batch->channel->send_at_once(frame)) batch->untold.clear();
    }
  } catch (const PeerGone&) {  // the reader sees it too
  } catch (const std::exception& error) {
    log_warning(std::string("a worker could not be told of cancelled requests: ") + error.what());
  }
  return std::max(kWatchS, seconds_since(start) / kWatchShare);
}

}  // namespace pytriton
