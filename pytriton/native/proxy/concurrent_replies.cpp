// How streams pass replies on.
#include "../frames/failure.h"
#include "concurrent_executor.h"

namespace pytriton {

namespace {
constexpr uint64_t kCheckBytes = 8 << 20;  // of responses, before a look at the memory that is left
constexpr uint64_t kResponseBytes = 4096;  // what the server needs for each, beside its data
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr char kShortOfMemory[] =
    "the stream was ended because the server's memory is short; it holds the responses that clients have not read yet";
}  // namespace

void ConcurrentExecutor::start_reader(const std::shared_ptr<Channel>& channel) {
  if (channel->is_local()) return;
  for (auto reading = readers_.begin(); reading != readers_.end();) {
    if (!reading->is_over) {
      ++reading;
      continue;
    }
    reading->thread.join();
    reading = readers_.erase(reading);
  }
  Reading& reading = readers_.emplace_back();
  try {
    reading.thread = std::thread([this, channel, &reading] {
      read(channel);
      reading.is_over = true;
    });
  } catch (...) {  // there are too many threads
    readers_.pop_back();
    channel->shutdown();
    throw;
  }
}

void ConcurrentExecutor::read(const std::shared_ptr<Channel>& channel) {
  std::string reason;
  Reply reply;
  try {
    while (true) {
      channel->receive(reply);
      channel->release(handle_reply(*channel, reply));
    }
  } catch (const std::exception& error) {  // gone, or it makes no sense: nothing else that comes can be trusted
    reason = error.what();
  }
  channel->shutdown();
  fail_batches(channel.get(), reason);
}

void ConcurrentExecutor::handle(Channel& channel, const Reply& reply) noexcept {
  try {
    handle_reply(channel, reply);
  } catch (const std::exception& error) {
    channel.shutdown();
    fail_batches(&channel, error.what());
  }
}

void ConcurrentExecutor::worker_gone(Channel& channel) noexcept { fail_batches(&channel, "it ended"); }

// Sends a reply's responses; whether other replies to the same batch follow.
bool ConcurrentExecutor::handle_reply(Channel& channel, const Reply& reply) {
  const Frame& frame = reply.frame;
  if (frame.kind == Kind::ask || frame.kind == Kind::release) return false;
  if (frame.kind == Kind::limit) {
    set_limit(frame.number);
    return false;
  }
  BatchPointer batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(frame.number);
    if (found != batches_.end() && found->second->channel.get() == &channel) batch = found->second;
  }
  if (!batch || frame.requests != batch->requests().size()) throw FrameError("the reply belongs to no batch");
  if (frame.kind == Kind::response) {
    if (frame.more && !has_memory(reply)) {
      batch->fail(Code::unavailable, kShortOfMemory);
    } else {
      batch->send(reply, !frame.more);
    }
    channel.finished(reply);
  } else if (frame.kind == Kind::end) {
    batch->end();
  } else if (frame.kind == Kind::error) {
    handle_error(reply, batch);
    return false;
  } else {
    throw FrameError("the reply is of another kind");
  }
  if (!frame.more) remove(frame.number);
  return frame.more;
}

// An error is its batch's last reply, whatever the worker says: requests that are sent again are in other batches, and
// must be in one alone.
void ConcurrentExecutor::handle_error(const Reply& reply, const BatchPointer& batch) {
  const Status status = status_of(reply);
  const bool was_in_flight = remove(reply.frame.number) != nullptr;
  if (!status.isolate || batch->requests().size() == 1) return batch->fail(status.code, status.message);
  if (!was_in_flight) return;  // whoever took it out fails it
  const std::vector<BatchPointer> alone = batch->split();
  {
    const std::lock_guard lock(mutex_);
    failed_.insert(failed_.end(), alone.begin(), alone.end());
  }
  can_repeat_.notify_all();
}

// Waits until memory is not short, if it is time to look; false if that takes too long, or the model ends.
bool ConcurrentExecutor::has_memory(const Reply& reply) {
  const std::lock_guard lock(memory_mutex_);
  unchecked_bytes_ += reply.frame.data_bytes + kResponseBytes * reply.frame.requests;
  if (unchecked_bytes_ < kCheckBytes) return true;
  unchecked_bytes_ = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (memory_.is_short()) {
    if (std::chrono::steady_clock::now() > deadline) {
      memory_.accept();
      return false;
    }
    std::unique_lock closing(mutex_);
    if (closed_.wait_for(closing, kPause, [this] { return closing_; })) return false;
  }
  return true;
}

// Takes a batch out of those in flight; none if it was taken out before.
BatchPointer ConcurrentExecutor::remove(uint32_t number) {
  BatchPointer batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(number);
    if (found == batches_.end()) return nullptr;
    batch = std::move(found->second);
    batches_.erase(found);
  }
  add_slots(1);
  if (!batch->is_repeated) {
    const uint64_t now = now_ns();
    ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, batch->size(), batch->times.start,
                                                            batch->times.compute_start, now, now));
  }
  return batch;
}

// Fails what was sent over a connection that has ended.
void ConcurrentExecutor::fail_batches(const Channel* channel, const std::string& reason) {
  std::vector<uint32_t> lost;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, batch] : batches_) {
      if (!channel || (batch->is_sent && batch->channel.get() == channel)) lost.push_back(number);
    }
  }
  for (const uint32_t number : lost) {
    if (const BatchPointer batch = remove(number)) batch->fail(Code::unavailable, gone(reason));
  }
}

}  // namespace pytriton
