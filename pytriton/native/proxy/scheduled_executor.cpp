#include "scheduled_executor.h"

#include "../frames/failure.h"

namespace pytriton {

namespace {
constexpr auto kRetry = std::chrono::seconds(1);

std::chrono::nanoseconds compute_time(const Times& times) {
  return std::chrono::nanoseconds(times.compute_end ? times.compute_end - times.compute_start : 0);
}
}  // namespace

ScheduledExecutor::ScheduledExecutor(std::unique_ptr<WorkerConnection> connection, const Model& model,
                                     TRITONBACKEND_ModelInstance* instance, Scheduler& scheduler)
    : worker_(std::move(connection)),
      model_(model),
      instance_(instance),
      scheduler_(scheduler),
      is_local_(worker_->channel()->is_local()) {
  worker_->deliver_to(*this);
  try {
    start_reader(worker_->channel());
    scheduler_.add(*this);
  } catch (...) {
    close();
    throw;
  }
}

ScheduledExecutor::~ScheduledExecutor() { close(); }

void ScheduledExecutor::close() {
  scheduler_.remove(*this);
  std::shared_ptr<Channel> current;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_busy_; });
    is_closing_ = true;
    current = current_;
  }
  changed_.notify_all();
  if (current) current->say_goodbye();
  while (true) {  // a reader that restores the connection starts another
    std::list<Reading> first;
    {
      const std::lock_guard sending(sending_);
      if (readers_.empty()) break;
      first.splice(first.end(), readers_, readers_.begin());
    }
    first.front().thread.join();
  }
  worker_->close();
}

bool ScheduledExecutor::is_free() {
  const std::lock_guard lock(mutex_);
  return !is_busy_ && !is_reconnecting_;
}

bool ScheduledExecutor::is_lost() {
  const std::lock_guard lock(mutex_);
  return is_lost_;
}

void ScheduledExecutor::adopt(const RequestPointers& late) {
  for (const auto& request : late) request->assign(instance_);
}

void ScheduledExecutor::send(NextBatch next) {
  const BatchRecord record = next.record;
  try {
    adopt(next.requests);
    adopt(next.cancelled);
    fail(next.cancelled, Times(), Code::cancelled, "the request was cancelled");
    next.cancelled.clear();
    if (next.requests.empty()) return scheduler_.answered(record, {});
    const auto batch =
        std::make_shared<Batch>(Batch{std::move(next.requests), record, next.reason, next.is_repeated, next.is_unread});
    {
      const std::lock_guard lock(mutex_);
      is_busy_ = true;
      batch_ = batch;
    }
    try {
      submit(batch);
    } catch (const PeerGone& error) {
      fail_unsent(batch, error.code, gone(error.what()));
    } catch (const Failure& error) {
      fail_unsent(batch, error.code, error.what());
    } catch (const std::exception& error) {
      fail_unsent(batch, Code::internal, error.what());
    }
  } catch (const std::exception& error) {  // there is no memory; the requests fail as they are left
    log_warning(error.what());
    scheduler_.answered(record, {});
  }
}

void ScheduledExecutor::submit(const BatchPointer& batch) {
  // A worker that is being replaced may take long to come back: others get the batch, unless it was with one before.
  const bool may_return = !is_local_ && !batch->is_unread && !is_lost();
  std::shared_ptr<Channel> channel;
  {
    std::unique_lock sending(sending_, std::defer_lock);
    if (!may_return) {
      sending.lock();
    } else if (!sending.try_lock()) {  // the reader restores the connection
      if (take_back(batch)) return_unread(*batch);
      return;
    }
    Requests refused;  // they have their errors
    Outgoing frame = encode(batch->requests, model_, refused, kReasons[static_cast<size_t>(batch->reason)]);
    finish(refused, batch->times);
    if (batch->requests.empty()) return fail_unsent(batch, Code::internal, "nothing is left of the batch");
    worker_->number(frame);
    {
      const std::lock_guard lock(mutex_);
      batch->number = frame.number;
      batch->sent = frame.requests;
      batch->times.compute_start = now_ns();
    }
    const auto note = [&](const std::shared_ptr<Channel>& next) {
      const std::lock_guard lock(mutex_);
      batch->channel = next.get();
    };
    try {
      worker_->try_send(frame, note);
    } catch (const PeerGone&) {
      if (may_return) {
        {
          const std::lock_guard lock(mutex_);
          is_reconnecting_ = true;
        }
        worker_->channel()->shutdown();  // its reader restores the connection
        sending.unlock();
        if (take_back(batch)) return_unread(*batch);
        return;
      }
      worker_->resend(frame, note);
    }
    channel = worker_->channel();
    {
      const std::lock_guard lock(mutex_);
      batch->is_sent = true;
    }
    start_reader(channel);
  }
  if (channel->is_shut()) return connection_lost(*channel, "it ended");
  if (is_local_) connection_lost(*channel, "it gave no answer");
}

// Whether nobody else has taken a batch that was not sent.
bool ScheduledExecutor::take_back(const BatchPointer& batch) {
  const std::lock_guard lock(mutex_);
  if (batch_ != batch) return false;
  batch_.reset();
  return true;
}

// Fails a batch that was not sent, unless somebody else does.
void ScheduledExecutor::fail_unsent(const BatchPointer& batch, Code code, const std::string& message) {
  if (!take_back(batch)) return;
  fail(batch->requests, batch->times, code, message);
  release(*batch);
}

// The worker may get another batch.
void ScheduledExecutor::release(const Batch& batch) {
  {
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
  }
  changed_.notify_all();
  scheduler_.answered(batch.record, batch.has_failed ? std::chrono::nanoseconds() : compute_time(batch.times));
  scheduler_.dispatch(*this);
}

// Reads what comes over a connection from now on. Throws if there are too many threads.
void ScheduledExecutor::start_reader(const std::shared_ptr<Channel>& channel) {
  bool is_late = false;
  {
    const std::lock_guard lock(mutex_);
    if (current_ == channel) return;
    current_ = channel;
    unread_ = nullptr;
    is_lost_ = false;
    is_late = is_closing_;
  }
  if (is_late) channel->say_goodbye();
  if (is_local_) return;
  readers_.remove_if([](Reading& reading) {
    const bool is_over = reading.is_over;
    if (is_over) reading.thread.join();
    return is_over;
  });
  Reading& reading = readers_.emplace_back();
  try {
    reading.thread = std::thread([this, channel, &reading] {
      read(channel);
      reading.is_over = true;
    });
  } catch (...) {
    readers_.pop_back();
    channel->shutdown();
    throw;
  }
}

void ScheduledExecutor::read(const std::shared_ptr<Channel>& channel) {
  std::string reason;
  bool is_unread = false;
  Reply reply;
  try {
    while (true) {
      channel->receive(reply);
      handle_reply(*channel, reply);
    }
  } catch (const Unread& error) {
    reason = error.what();
    is_unread = true;
  } catch (const std::exception& error) {  // gone, or it makes no sense: nothing else that comes can be trusted
    reason = error.what();
  }
  bool is_current = false;
  {
    const std::lock_guard lock(mutex_);
    is_current = current_ == channel;
    is_reconnecting_ |= is_current;
    if (is_current && is_unread) unread_ = channel.get();
  }
  channel->shutdown();
  connection_lost(*channel, reason);
  if (is_current) reconnect();
}

// Waits for a worker that has ended to come back, if anybody starts it again. Other workers get the requests meanwhile,
// and this one those that fail, if there is none.
void ScheduledExecutor::reconnect() {
  while (true) {
    const bool is_connected = try_to_reconnect();
    std::unique_lock lock(mutex_);
    is_reconnecting_ = false;
    is_lost_ = !is_connected;
    if (is_closing_) return;
    lock.unlock();
    scheduler_.dispatch(*this);
    if (is_connected) return;
    lock.lock();
    if (changed_.wait_for(lock, kRetry, [this] { return is_closing_; })) return;
  }
}

bool ScheduledExecutor::try_to_reconnect() {
  const std::lock_guard sending(sending_);
  {
    const std::lock_guard lock(mutex_);
    if (is_closing_) return false;
  }
  try {
    if (worker_->channel()->is_shut()) worker_->reconnect();
    if (worker_->channel()->is_shut()) return false;
    start_reader(worker_->channel());
    return true;
  } catch (const std::exception& error) {
    log_warning(error.what());
    return false;
  }
}

void ScheduledExecutor::handle(Channel& channel, const Reply& reply) noexcept {
  try {
    handle_reply(channel, reply);
  } catch (const std::exception& error) {
    channel.shutdown();
    connection_lost(channel, error.what());
  }
}

// Throws FrameError if the reply makes no sense.
void ScheduledExecutor::handle_reply(Channel& channel, const Reply& reply) {
  const Frame& frame = reply.frame;
  if (frame.kind == Kind::release) return;
  BatchPointer batch;
  {
    const std::lock_guard lock(mutex_);
    const bool is_its = batch_ && batch_->channel == &channel && batch_->number == frame.number;
    if (!is_its || batch_->sent != frame.requests) throw FrameError("the reply belongs to another batch");
    if (frame.kind != Kind::ask && frame.kind != Kind::response && frame.kind != Kind::error) {
      throw FrameError("the reply is of another kind");
    }
    batch = batch_;
    if (frame.kind != Kind::ask) batch_.reset();
  }
  if (frame.kind == Kind::ask) return send_cancellation(channel, *batch);
  batch->times.compute_end = now_ns();
  batch->has_failed = frame.kind == Kind::error;
  // A worker that has answered gets its next batch before clients get the answers, as it would wait otherwise. Unless
  // its callable is slow, or the answer is large: then clients would wait.
  const bool is_released =
      frame.kind == Kind::response && frame.region == kNoRegion && !Scheduler::is_slow(compute_time(batch->times));
  if (is_released) release(*batch);
  try {
    if (frame.kind == Kind::response) {
      answer(channel, reply, *batch);
    } else {
      handle_error(reply, *batch);
    }
  } catch (const std::exception& error) {  // nobody else knows the batch any more
    fail(batch->requests, batch->times, Code::internal, error.what());
    if (!is_released) release(*batch);
    throw;
  }
  if (!is_released) release(*batch);
}

void ScheduledExecutor::answer(Channel& channel, const Reply& reply, const Batch& batch) const {
  respond(reply, batch.requests, model_);
  channel.finished(reply);
  report(batch);
  finish(batch.requests, batch.times);
}

void ScheduledExecutor::handle_error(const Reply& reply, Batch& batch) {
  const Status status = status_of(reply);
  if (!batch.is_repeated) report(batch);
  if (status.isolate && batch.requests.size() > 1) {
    requeue(batch.requests, true, false);
  } else {
    fail(batch.requests, batch.times, status.code, status.message);
  }
}

// The worker waits for that.
void ScheduledExecutor::send_cancellation(Channel& channel, Batch& batch) {
  {
    const std::lock_guard lock(mutex_);
    batch.was_read = true;  // what the worker leaves unread from now on is our answer
  }
  Outgoing frame = cancellation(batch.number, batch.requests);
  channel.send(frame);
}

// Fails the batch that was sent over a connection that has ended. It is sent once more if the worker has not read it.
void ScheduledExecutor::connection_lost(const Channel& channel, const std::string& reason) {
  BatchPointer batch;
  bool is_unread = false;
  {
    const std::lock_guard lock(mutex_);
    if (!batch_ || !batch_->is_sent || batch_->channel != &channel) return;
    batch = std::move(batch_);
    is_unread = unread_ == &channel && !batch->is_unread && !batch->was_read;
  }
  if (is_unread) return return_unread(*batch);
  fail(batch->requests, batch->times, Code::unavailable, gone(reason));
  release(*batch);
}

// Gives the requests of a batch that no worker has read back to the queue.
void ScheduledExecutor::return_unread(const Batch& batch) {
  try {
    requeue(batch.requests, batch.is_repeated, true);
  } catch (const Failure& failure) {  // of the server, when it is asked for the inputs again
    fail(batch.requests, batch.times, failure.code, failure.what());
  }
  release(batch);
}

void ScheduledExecutor::requeue(const Requests& requests, bool is_repeated, bool is_unread) {
  std::vector<QueuedRequest> again;
  for (const auto& request : requests) {
    again.push_back(queued(request, model_));
    again.back().since = request->arrived();
    again.back().is_repeated = is_repeated;
    again.back().is_unread = is_unread;
  }
  scheduler_.requeue(std::move(again));
}

// Before clients get their answers, which may look at the server's statistics.
void ScheduledExecutor::report(const Batch& batch) const {
  const Times& times = batch.times;
  ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, batch_size(batch.requests, model_), times.start,
                                                          times.compute_start, times.compute_end, now_ns()));
}

}  // namespace pytriton
