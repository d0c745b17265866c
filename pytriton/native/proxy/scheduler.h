// Makes the batches of a model, whose requests wait in one queue for all its workers. It does what the server's dynamic
// batcher does, without a thread that has to wake for each batch.
//
// A request that finds a free worker leaves at once, and what arrives meanwhile is the next batch. With three
// exceptions:
//
//   - Requests are announced that have not arrived: a batch waits for them, or until it is large enough.
//   - A slow callable has just answered: clients that send one request after the other have their next ones on the way.
//     The batch waits for these, for a part of the callable's time.
//   - The model's batcher is configured with preferred sizes or a delay.
//
// With a LatencyTarget, that says how large a batch may be, and requests that it refuses do not wait.
//
// Three things happen: requests come (enqueue), a worker becomes free (dispatch), and it is time for a batch that has
// waited (timer.h). Each ends in dispatch(), which sends batches as long as there is a free worker and a batch that may
// leave: next_batch() says which.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "../frames/arrivals.h"
#include "batch_queue.h"
#include "timer.h"

namespace pytriton {

// What the scheduler gets back when a batch has been answered.
struct BatchRecord {
  size_t requests = 0;  // with those that are not part of the batch
  BatchSize size;
  std::vector<std::chrono::steady_clock::time_point> since;  // of the batch's requests, with a target
};

struct NextBatch {
  RequestPointers requests;
  RequestPointers cancelled;                    // not part of the batch; there may be these alone
  bool is_repeated = false, is_unread = false;  // as of its requests
  Reason reason = Reason::idle;
  BatchRecord record;
};

// Where batches go. For any thread.
class BatchWorker {
 public:
  virtual ~BatchWorker() = default;
  virtual bool is_free() = 0;                           // a batch may be sent to it
  virtual bool is_lost() = 0;                           // it has died, and nobody has taken its place
  virtual bool is_local() = 0;                          // in this process, where send() runs the callable
  virtual void send(NextBatch batch) = 0;               // one thread at a time; throws nothing
  virtual void adopt(const RequestPointers& late) = 0;  // accounts for requests that are refused; throws nothing
};

class Scheduler {
 public:
  // For metrics: how many more requests wait than were reported last, how many batches have left since, by reason, and
  // how many requests were refused. How long batches take, if a second has passed.
  struct Changes {
    int64_t waiting = 0;
    std::array<uint32_t, kReasons.size()> batches{};
    uint32_t refused = 0;
    std::vector<BatchTimes::Point> times;
  };
  using Report = std::function<void(const Changes&)>;  // for one thread at a time; throws nothing
  // Answers requests that would be late, on any thread; throws nothing.
  using Refuse = std::function<void(const RequestPointers&)>;

  Scheduler(const BatchPolicy& policy, std::shared_ptr<Arrivals> arrivals, Report report,
            BatchQueue::IsCancelled is_cancelled, Refuse refuse);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void add(BatchWorker& worker);
  // Sends the worker nothing more when it returns.
  void remove(BatchWorker& worker);

  // Takes requests from the server.
  void enqueue(std::vector<QueuedRequest> requests);
  // Called after enqueue() on the same thread of the server. For a burst of requests the server wakes all threads of
  // the model's instances that wait for one, where one thread is enough: all others sleep here for a moment.
  void park();
  // Takes requests that were sent before, to be sent before all others.
  void requeue(std::vector<QueuedRequest> requests);
  // Sends the next batch to a worker that has become free, if one may leave. Within BatchWorker::send() it does
  // nothing, as the caller of that looks again: for any worker, if requests have come back meanwhile.
  void dispatch(BatchWorker& worker) { dispatch(&worker); }

  // The requests of a batch are no longer with a worker; how long it took to answer them, 0 if it has not.
  void answered(const BatchRecord& batch, std::chrono::nanoseconds took);
  // Whether clients get their answers before the next batch is sent, so that their next requests may be part of it.
  static bool is_slow(std::chrono::nanoseconds took) { return took >= std::chrono::milliseconds(1); }

 private:
  using Clock = std::chrono::steady_clock;
  struct WorkerState {
    BatchWorker* worker;
    bool is_dispatching = false;  // a thread sends to it, and looks again
    Clock::time_point free_at;    // as expected, with a target
  };

  bool is_refused(const QueuedRequest& request);
  void add_pending(size_t requests);
  void dispatch(const BatchWorker* only) noexcept;  // null: to any worker
  void dispatch_at_timer() noexcept;
  WorkerState* free_worker(const BatchWorker* only);
  void choose_last(const WorkerState& state);
  NextBatch next_batch(Clock::time_point now, RequestPointers& late);
  bool waits_for_more(size_t requests, Clock::time_point now);
  size_t enough_requests() const;
  void report_changes();

  const std::chrono::microseconds delay_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Arrivals> arrivals_;
  const Report report_;
  const Refuse refuse_;

  std::mutex mutex_;  // for what follows
  BatchQueue queue_;
  std::optional<LatencyTarget> target_;

  std::vector<std::unique_ptr<WorkerState>> workers_;  // the next to be chosen first
  std::condition_variable dispatched_;
  bool is_local_ = false;  // a worker

  size_t enqueuing_ = 0, parked_ = 0;  // threads of the server

  size_t pending_ = 0;              // requests in the queue and with workers
  size_t peak_pending_ = 0;         // of them, lately
  size_t requests_since_peak_ = 0;  // ... was adapted
  bool is_slow_ = false;            // the last batch
  Clock::time_point pause_until_;

  Clock::time_point held_since_ = Clock::time_point::max();  // for requests that were announced
  int64_t announced_before_ = 0;                             // at the last call of the timer that changed it
  Clock::time_point announced_since_;

  Changes changes_;
  int64_t reported_waiting_ = 0;
  Clock::time_point reported_times_;

  Timer timer_;  // its calls end before all else does
};

}  // namespace pytriton
