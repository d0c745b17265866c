#include "latency_target.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pytriton {

namespace {
constexpr double kMinMargin = 0.7;
constexpr double kStep = 0.05;          // of the margin, for a late answer
constexpr double kMinFactor = 0.8;      // of the margin, for a batch
constexpr double kMaxExcess = 0.25;     // of the time; beyond, the callable is too irregular to plan for
constexpr double kGrowth = 4;           // from the largest batch before
constexpr double kHardlyLonger = 1.25;  // than the smallest batch
}  // namespace

LatencyTarget::LatencyTarget(double target, double share, BatchSize most)
    : target_(target), share_(share), max_(most) {}

// Whether requests that wait for nothing are in time. Else no rule helps, and the model is served without.
bool LatencyTarget::can_be_met() const {
  return times_.fixed() + times_.per_unit() * times_.least_units() <= target_ * kMaxMargin;
}

double LatencyTarget::excess() const { return std::min(excess_, kMaxExcess * budget()); }

// Of a batch, rows or cost. Where even a small request takes more than half of the time, those that take hardly longer
// are allowed: smaller ones would not be in time either, and answer fewer requests.
double LatencyTarget::max_units() const {
  const double least = times_.fixed() + times_.per_unit() * times_.least_units();
  const double time = std::max((budget() - excess()) / 2, kHardlyLonger * least) - times_.fixed();
  const double most = times_.units(max_);
  return times_.per_unit() > 0 ? std::min(time / times_.per_unit(), most) : most;
}

bool LatencyTarget::allows(const BatchSize& batch) const {
  if (!times_.is_known()) return true;
  // Perhaps a small one takes less, which batches of about one size do not tell.
  if (!can_be_met())
    return times_.min_units() < 2 * times_.least_units() || 2 * times_.units(batch) <= times_.min_units();
  return times_.units(batch) <= std::min(max_units(), kGrowth * times_.max_units());
}

bool LatencyTarget::refuses(const BatchSize& request, const BatchSize& ahead, double free_after, size_t workers) const {
  if (!times_.is_known() || !can_be_met()) return false;
  const double own = times_.units(request), before = times_.units(ahead);
  const double most = std::max({max_units(), own, 1.0});
  const double batches =
      std::floor(std::max(before / most, static_cast<double>(ahead.rows) / static_cast<double>(max_.rows)));
  const double rest = std::min(most, std::max(before - batches * most, 0.0) + own);
  const double wait = (batches * times_.fixed() + times_.per_unit() * std::min(batches * most, before)) /
                      static_cast<double>(std::max<size_t>(workers, 1));
  const double left = target_ - times_.fixed() - times_.per_unit() * rest;
  const double reserve = std::min(target_ - budget() + excess(), left / 2);  // or a slow callable would refuse all
  return free_after + wait > left - reserve;
}

bool LatencyTarget::is_late(double waited, const BatchSize& batch) const {
  return times_.is_known() && can_be_met() && waited + times_.expected(batch) > target_;
}

void LatencyTarget::answered(const BatchSize& batch, double took, const std::vector<double>& latencies) {
  const bool is_irregular = times_.is_known() && took > times_.expected(batch) + kMaxExcess * target_;
  times_.add(batch, std::max<size_t>(latencies.size(), 1), took);
  excess_ = times_.excess(share_);
  // Neither what took long for no reason nor what waited for that would have been in time with another plan.
  if (std::exchange(was_irregular_, is_irregular) || is_irregular) return;
  const double may_be_late = (1 - share_) / 4;
  double change = 0;
  for (const double latency : latencies) change += latency > target_ ? may_be_late - 1 : may_be_late;
  margin_ = std::clamp(margin_ * std::max(std::exp(kStep * change), kMinFactor), kMinMargin, kMaxMargin);
}

}  // namespace pytriton
