#include "scheduler.h"

#include <algorithm>
#include <utility>

#include "../frames/handles.h"

namespace pytriton {

namespace {
constexpr size_t kMinEnough = 8;         // requests
constexpr size_t kDecayInterval = 1000;  // requests until peak_pending_ falls
constexpr int kPauseShare = 10;          // a slow callable's time is divided by
constexpr auto kLongestPause = std::chrono::milliseconds(20);
constexpr auto kForgetAnnounced = std::chrono::milliseconds(20);  // if their number does not change
constexpr auto kParkTime = std::chrono::milliseconds(20);
constexpr auto kTimesPeriod = std::chrono::seconds(1);  // of reports

// A dispatch() that this thread is in.
struct Dispatching {
  const Scheduler* scheduler = nullptr;
  bool is_for_all = false;  // within it, one for all workers was asked for
};
thread_local Dispatching dispatching;
}  // namespace

Scheduler::Scheduler(const BatchPolicy& policy, std::shared_ptr<Arrivals> arrivals, Report report,
                     BatchQueue::IsCancelled is_cancelled, Refuse refuse)
    : delay_(policy.delay),
      patience_(policy.patience),
      arrivals_(std::move(arrivals)),
      report_(std::move(report)),
      refuse_(std::move(refuse)),
      queue_(policy, std::move(is_cancelled)),
      timer_([this] { dispatch_at_timer(); }) {
  if (policy.target.count()) {
    target_.emplace(seconds(policy.target), policy.share, BatchSize{policy.max_rows, policy.max_cost});
  }
}

void Scheduler::add(BatchWorker& worker) {
  {
    const std::lock_guard lock(mutex_);
    workers_.push_back(std::make_unique<WorkerState>(WorkerState{&worker, false, {}}));
    is_local_ |= worker.is_local();
  }
  dispatch(worker);
}

void Scheduler::remove(BatchWorker& worker) {
  std::unique_lock lock(mutex_);
  const auto found =
      std::find_if(workers_.begin(), workers_.end(), [&](const auto& state) { return state->worker == &worker; });
  if (found == workers_.end()) return;
  const std::unique_ptr<WorkerState> state = std::move(*found);
  workers_.erase(found);
  dispatched_.wait(lock, [&] { return !state->is_dispatching; });
}

void Scheduler::enqueue(std::vector<QueuedRequest> requests) {
  RequestPointers refused;
  bool is_left_to_timer = false;
  {
    const std::lock_guard lock(mutex_);
    for (QueuedRequest& each : requests) {
      if (is_refused(each)) {
        refused.push_back(std::move(each.request));
      } else {
        queue_.put_last(std::move(each));
      }
    }
    changes_.refused += static_cast<uint32_t>(refused.size());
    // This thread would take no further request while it runs the callable, and nobody would know of them.
    const int64_t announced = arrivals_->arrive(static_cast<int64_t>(requests.size()));
    is_left_to_timer = announced == 0 && is_local_ && timer_.call_at(Clock::now());
    add_pending(requests.size() - refused.size());
    ++enqueuing_;
  }
  if (!refused.empty()) refuse_(refused);  // before this thread may run the callable
  if (!is_left_to_timer) dispatch(nullptr);
  const std::lock_guard lock(mutex_);
  --enqueuing_;
}

void Scheduler::add_pending(size_t requests) {
  pending_ += requests;
  requests_since_peak_ += requests;
  if (pending_ >= peak_pending_) {
    peak_pending_ = pending_;
    requests_since_peak_ = 0;
  } else if (requests_since_peak_ > kDecayInterval) {
    peak_pending_ -= (peak_pending_ - pending_ + 3) / 4;
    requests_since_peak_ = 0;
  }
}

// Whether its answer would be late. One that finds a free worker is never refused: its batch tells how long it takes.
bool Scheduler::is_refused(const QueuedRequest& request) {
  const BatchSize size = size_of(request);
  if (!target_) return false;
  const Clock::time_point now = Clock::now();
  auto first = Clock::time_point::max();
  for (const auto& state : workers_) first = std::min(first, state->free_at);
  // Most requests need no look at the workers. A batch of several requests takes half of the time at most.
  const double free_after = workers_.empty() ? 0 : seconds(first - now);
  if (!target_->refuses(size, queue_.waiting(), std::max(target_->target() / 2, free_after), 1)) return false;
  first = Clock::time_point::max();
  size_t workers = 0;
  for (const auto& state : workers_) {
    if (state->worker->is_lost()) continue;
    const bool is_free = !state->is_dispatching && state->worker->is_free();
    if (is_free && queue_.empty()) return false;
    first = std::min(first, is_free ? now : std::max(now, state->free_at));
    ++workers;
  }
  return workers && target_->refuses(size, queue_.waiting(), seconds(first - now), workers);
}

void Scheduler::park() {
  {
    const std::lock_guard lock(mutex_);
    if (is_local_ || enqueuing_ + parked_ + 1 >= workers_.size()) return;
    ++parked_;
  }
  std::this_thread::sleep_for(kParkTime);
  const std::lock_guard lock(mutex_);
  --parked_;
}

void Scheduler::requeue(std::vector<QueuedRequest> requests) {
  {
    const std::lock_guard lock(mutex_);
    pending_ += requests.size();
    for (auto each = requests.rbegin(); each != requests.rend(); ++each) queue_.put_first(std::move(*each));
  }
  dispatch(nullptr);
}

void Scheduler::dispatch(const BatchWorker* only) noexcept {
  if (dispatching.scheduler == this) {
    dispatching.is_for_all |= !only;
    return;
  }
  const Dispatching before = std::exchange(dispatching, {this});
  try {
    std::unique_lock lock(mutex_);
    while (WorkerState* const state = free_worker(only)) {
      const Clock::time_point now = Clock::now();
      RequestPointers late;
      NextBatch batch = next_batch(now, late);
      const bool is_empty = batch.requests.empty() && batch.cancelled.empty();
      if (is_empty && late.empty()) break;
      if (target_ && target_->times().is_known()) {
        const std::chrono::duration<double> expected(target_->times().expected(batch.record.size));
        state->free_at = now + std::chrono::duration_cast<Clock::duration>(expected);
      }
      choose_last(*state);
      if (!batch.requests.empty()) ++changes_.batches[static_cast<size_t>(batch.reason)];
      report_changes();
      state->is_dispatching = true;
      lock.unlock();
      if (!late.empty()) {
        state->worker->adopt(late);
        refuse_(late);
      }
      if (!is_empty) state->worker->send(std::move(batch));
      lock.lock();
      if (std::exchange(dispatching.is_for_all, false)) only = nullptr;
      state->is_dispatching = false;
      dispatched_.notify_all();
    }
    report_changes();
  } catch (const std::exception& error) {  // there is no memory; the requests wait for the next call
    log_warning(error.what());
  }
  dispatching = before;
}

void Scheduler::answered(const BatchRecord& batch, std::chrono::nanoseconds took) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  pending_ -= std::min(batch.requests, pending_);
  if (!took.count()) return;
  if (target_) {
    std::vector<double> latencies;
    latencies.reserve(batch.since.size());
    for (const Clock::time_point since : batch.since) latencies.push_back(seconds(now - since));
    target_->answered(batch.size, seconds(took), latencies);
  }
  is_slow_ = is_slow(took);
  if (is_slow_) pause_until_ = now + std::min<Clock::duration>(took / kPauseShare, kLongestPause);
}

void Scheduler::report_changes() {
  const auto waiting = static_cast<int64_t>(queue_.size());
  changes_.waiting = waiting - std::exchange(reported_waiting_, waiting);
  if (const auto now = target_ ? Clock::now() : Clock::time_point(); now >= reported_times_ + kTimesPeriod) {
    changes_.times = target_->times().points();
    if (!changes_.times.empty()) reported_times_ = now;
  }
  report_(std::exchange(changes_, {}));
}

// The free worker that has waited for a batch for the longest time; one that is lost only if all are, as its requests
// fail unless it comes back.
Scheduler::WorkerState* Scheduler::free_worker(const BatchWorker* only) {
  if (queue_.empty()) return nullptr;
  auto found = workers_.end();
  bool are_lost = true;
  for (auto state = workers_.begin(); state != workers_.end(); ++state) {
    BatchWorker& worker = *(*state)->worker;
    const bool is_lost = worker.is_lost();
    const bool is_better = found == workers_.end() || (are_lost && !is_lost);
    are_lost &= is_lost;
    if ((only && &worker != only) || (*state)->is_dispatching || !worker.is_free()) continue;
    if (is_better) found = state;
  }
  if (found == workers_.end() || (!are_lost && (*found)->worker->is_lost())) return nullptr;
  return found->get();
}

void Scheduler::choose_last(const WorkerState& state) {
  const auto chosen =
      std::find_if(workers_.begin(), workers_.end(), [&](const auto& each) { return each.get() == &state; });
  std::rotate(chosen, chosen + 1, workers_.end());
}

// The next batch, if one may leave, and the requests that are too late for any.
NextBatch Scheduler::next_batch(Clock::time_point now, RequestPointers& late) {
  NextBatch batch;
  BatchQueue::Choice choice;
  size_t waiting = 0;
  do {  // others may take the places of those that do not leave
    waiting = queue_.size();
    choice = queue_.choose(now, target_ ? &*target_ : nullptr);
    if (choice.can_wait && waits_for_more(choice.requests, now)) choice = {};
    queue_.take_cancelled(choice, batch.cancelled);
    if (target_ && choice.requests && queue_.size() == waiting) queue_.take_late(choice, now, *target_, late);
  } while (queue_.size() < waiting);
  changes_.refused += static_cast<uint32_t>(late.size());
  pending_ -= std::min(late.size(), pending_);
  batch.reason = choice.reason;
  batch.record.size = choice.size;
  batch.record.requests = choice.requests + batch.cancelled.size();
  if (!choice.requests) return batch;
  held_since_ = Clock::time_point::max();
  batch.is_repeated = queue_.first().is_repeated;
  batch.is_unread = queue_.first().is_unread;
  batch.requests.reserve(choice.requests);
  for (size_t request = 0; request < choice.requests; ++request) {
    QueuedRequest first = queue_.take_first();
    batch.requests.push_back(std::move(first.request));
    if (target_) batch.record.since.push_back(first.since);
  }
  return batch;
}

// Whether a batch that could grow does not leave yet.
bool Scheduler::waits_for_more(size_t requests, Clock::time_point now) {
  if (delay_.count()) return timer_.call_at(queue_.first().since + delay_);
  if (now < pause_until_ && pending_ < peak_pending_) return timer_.call_at(pause_until_);
  if (requests >= enough_requests() || arrivals_->count() <= 0) return false;
  held_since_ = std::min(held_since_, now);
  const Clock::time_point due = held_since_ + patience_;
  return now < due && timer_.call_at(due);
}

// Requests that leave although others are announced: with larger batches clients, server and worker would take turns. A
// slow callable gets all there are.
size_t Scheduler::enough_requests() const { return is_slow_ ? SIZE_MAX : std::max(kMinEnough, peak_pending_ / 2); }

// Forgets requests that were announced and have not arrived for a while.
void Scheduler::dispatch_at_timer() noexcept {
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (const int64_t announced = arrivals_->count(); announced != announced_before_ || !announced) {
      announced_before_ = announced;
      announced_since_ = now;
    } else if (now - announced_since_ >= kForgetAnnounced) {
      arrivals_->arrive(announced);
    }
  }
  dispatch(nullptr);
}

}  // namespace pytriton
