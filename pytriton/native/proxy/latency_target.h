// What a model may do to answer a share of its requests within a time: how large batches may be, and which requests
// come too late to wait for one. docs/scheduling.md explains the rules. It knows no clock and no queue.
//
//   - A request that comes when a batch has just left waits for that one and is part of the next. So a batch may take
//     half of the time, or hardly longer than the smallest.
//   - A batch is at most four times as large as any before, as nobody knows how long it takes. If those before were all
//     too large to be in time, smaller ones are tried.
//   - A request is refused if those before it take so long that its answer would be late: then its client learns that
//     at once, and the answers of the others are not late as well.
#pragma once

#include <vector>

#include "batch_times.h"

namespace pytriton {

// All times are seconds.
class LatencyTarget {
 public:
  LatencyTarget(double target, double share, BatchSize most);

  bool allows(const BatchSize& batch) const;
  // Whether a request that comes now would be late behind others, if the first of so many workers is free after a time.
  bool refuses(const BatchSize& request, const BatchSize& ahead, double free_after, size_t workers) const;
  // Whether a request is late that leaves now, after a time in the queue.
  bool is_late(double waited, const BatchSize& batch) const;

  // What the requests of a batch took, from when they came, and the batch itself.
  void answered(const BatchSize& batch, double took, const std::vector<double>& latencies);

  double target() const { return target_; }
  const BatchTimes& times() const { return times_; }

 private:
  static constexpr double kMaxMargin = 0.95;

  double budget() const { return target_ * margin_; }
  double excess() const;
  bool can_be_met() const;
  double max_units() const;

  const double target_, share_;
  const BatchSize max_;
  BatchTimes times_;
  double excess_ = 0;           // of the last batches, at the share
  bool was_irregular_ = false;  // the last batch
  double margin_ = kMaxMargin;  // of the target is used; less when more answers were late than may be
};

}  // namespace pytriton
