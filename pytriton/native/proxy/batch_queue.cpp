#include "batch_queue.h"

#include <algorithm>

namespace pytriton {

namespace {
constexpr uint64_t kMaxPadding = 64 << 20;  // bytes of a batch
constexpr size_t kSimilarWindow = 1024;     // requests at the front of the queue

template <typename Values>
bool contains(const Values& values, uint64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

uint64_t max_of(const std::vector<uint64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// Requests as one batch, padded to the largest of them.
struct PaddedBatch {
  uint64_t rows = 0, row_cost = 0, row_bytes = 0, bytes = 0;

  void add(const QueuedRequest& request) {
    rows += request.rows;
    row_cost = std::max(row_cost, request.row_cost);
    row_bytes = std::max(row_bytes, request.row_bytes);
    bytes += request.rows * request.row_bytes;
  }
  BatchSize size() const { return {rows, rows * row_cost}; }
  bool fits(const BatchPolicy& policy) const {
    return rows <= policy.max_rows && rows * row_cost <= policy.max_cost && rows * row_bytes - bytes <= kMaxPadding;
  }
};

}  // namespace

BatchSize size_of(const QueuedRequest& request) { return {request.rows, request.rows * request.row_cost}; }

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

BatchQueue::BatchQueue(BatchPolicy policy, IsCancelled is_cancelled)
    : policy_(std::move(policy)),
      max_preferred_rows_(max_of(policy_.preferred_rows)),
      is_cancelled_(std::move(is_cancelled)) {}

void BatchQueue::put(const Queue::iterator& place, QueuedRequest request) {
  const BatchSize size = size_of(request);
  waiting_ = {waiting_.rows + size.rows, waiting_.cost + size.cost};
  queue_.insert(place, std::move(request));
}

QueuedRequest BatchQueue::take_first() {
  QueuedRequest first = std::move(queue_.front());
  queue_.pop_front();
  subtract(first);
  return first;
}

void BatchQueue::subtract(const QueuedRequest& request) {
  const BatchSize size = size_of(request);
  waiting_ = {waiting_.rows - size.rows, waiting_.cost - size.cost};
}

BatchQueue::Choice BatchQueue::choose(TimePoint now, const LatencyTarget* target) {
  Choice choice, preferred;
  if (queue_.empty()) return choice;
  if (policy_.max_cost != UINT64_MAX) bring_similar_forward();
  const QueuedRequest& first = queue_.front();
  PaddedBatch padded;
  for (const QueuedRequest& next : queue_) {
    padded.add(next);
    const bool is_first = choice.requests == 0;
    if (!is_first && !padded.fits(policy_)) {
      choice.reason = Reason::full;
      break;
    }
    if (!is_first && (next.is_repeated || next.is_unread != first.is_unread || next.shapes != first.shapes)) {
      choice.reason = Reason::shape;
      break;
    }
    if (!is_first && target && !target->allows(padded.size())) {
      choice.reason = Reason::target;
      break;
    }
    ++choice.requests;
    choice.size = padded.size();
    if (contains(policy_.preferred_rows, choice.size.rows)) preferred = {choice.requests, choice.size};
    if (next.is_repeated) choice.reason = Reason::repeated;
    if (choice.size.rows >= policy_.max_rows) choice.reason = Reason::full;
    if (choice.reason != Reason::idle) break;
  }
  const bool is_overdue = policy_.delay.count() && (first.is_unread || now >= first.since + policy_.delay);
  if (preferred.requests && !is_overdue) {
    preferred.reason = Reason::preferred;
    return preferred;
  }
  if (choice.reason != Reason::idle) return choice;
  if (is_overdue) {
    choice.reason = Reason::delay;
  } else if (max_preferred_rows_ && choice.size.rows >= max_preferred_rows_) {
    choice.reason = Reason::preferred;
  } else {
    choice.can_wait = true;
  }
  return choice;
}

// Moves the oldest request to the front, and those whose costs are the most similar to its cost behind it, as many as
// fit into a batch. So none waits for ever, though a batch may leave without some that were moved, and more are moved
// later.
void BatchQueue::bring_similar_forward() {
  if (queue_.front().is_repeated) return;
  const auto is_apart = [this](const QueuedRequest& each) {
    return each.is_repeated || each.is_unread != queue_.front().is_unread;
  };
  const auto far = queue_.begin() + static_cast<ptrdiff_t>(std::min(queue_.size(), kSimilarWindow));
  const auto last = std::find_if(queue_.begin(), far, is_apart);
  const auto is_older = [](const QueuedRequest& one, const QueuedRequest& other) { return one.since < other.since; };
  const auto oldest = std::min_element(queue_.begin(), last, is_older);
  std::rotate(queue_.begin(), oldest, oldest + 1);
  const QueuedRequest& first = queue_.front();
  const auto window = static_cast<size_t>(last - queue_.begin());
  std::vector<size_t> nearest;
  for (size_t index = 1; index < window; ++index) {
    if (queue_[index].shapes == first.shapes) nearest.push_back(index);
  }
  const auto distance = [&](size_t index) {
    const uint64_t one = queue_[index].row_cost, other = first.row_cost;
    return std::pair(one > other ? one - other : other - one, index);
  };
  std::sort(nearest.begin(), nearest.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  PaddedBatch padded;
  padded.add(first);
  std::vector<bool> is_chosen(window, false);
  size_t end = 1;  // of what moves
  for (const size_t index : nearest) {
    padded.add(queue_[index]);
    if (!padded.fits(policy_)) break;
    is_chosen[index] = true;
    end = std::max(end, index + 1);
  }
  std::vector<QueuedRequest> others;
  size_t place = 1;
  for (size_t index = 1; index < end; ++index) {
    if (!is_chosen[index]) {
      others.push_back(std::move(queue_[index]));
    } else {
      if (index != place) queue_[place] = std::move(queue_[index]);
      ++place;
    }
  }
  std::move(others.begin(), others.end(), queue_.begin() + static_cast<ptrdiff_t>(place));
}

void BatchQueue::take_cancelled(const Choice& choice, RequestPointers& cancelled) {
  const auto is_cancelled = [this](const QueuedRequest& each) { return is_cancelled_(*each.request); };
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(choice.requests);
  if (std::none_of(queue_.begin(), end, is_cancelled)) return;
  const auto is_taken = [&](QueuedRequest& each) {
    if (!is_cancelled(each)) return false;
    subtract(each);
    cancelled.push_back(std::move(each.request));
    return true;
  };
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), is_taken), queue_.end());
}

void BatchQueue::take_late(const Choice& choice, TimePoint now, const LatencyTarget& target, RequestPointers& late) {
  size_t left = queue_.size();
  const auto is_late = [&](QueuedRequest& each) {
    if (left <= choice.requests || !target.is_late(seconds(now - each.since), choice.size)) return false;
    --left;
    subtract(each);
    late.push_back(std::move(each.request));
    return true;
  };
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), is_late), queue_.end());
}

}  // namespace pytriton
