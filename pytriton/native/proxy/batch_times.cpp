#include "batch_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pytriton {

namespace {
constexpr double kFaster = 0.8, kSlower = 1.25;     // changes below are noise
constexpr double kMuchBetter = 0.5;                 // of the error with rows; then cost explains the times
constexpr double kShortest = 1e-7, kLongest = 1e5;  // seconds

size_t bin_of(uint64_t units) {
  size_t bin = 0;
  while (units >>= 1U) ++bin;
  return bin;
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
}  // namespace

void BatchTimes::add(const BatchSize& size, size_t requests, double seconds) {
  seconds = std::clamp(seconds, kShortest, kLongest);
  if (is_known() && units(size) <= max_units_) {  // what is larger was a guess
    const double as_expected = expected(size);
    record_excess(seconds - as_expected);
    record_ratio(seconds / std::max(as_expected, kShortest));
  }
  Bin& bin = bins_[bin_of(size.cost)];
  const Sample sample{static_cast<double>(size.rows), static_cast<double>(size.cost), seconds,
                      static_cast<double>(requests), ++batches_};
  if (bin.samples.size() < kSamples) {
    bin.samples.push_back(sample);
  } else {
    bin.samples[bin.next] = sample;
    bin.next = (bin.next + 1) % kSamples;
  }
  summarize(bin);
  fit_line();
}

double BatchTimes::excess(double share) const {
  if (excesses_.empty()) return 0;
  std::vector<double> sorted = excesses_;
  const auto rank = static_cast<ptrdiff_t>(std::ceil(share * static_cast<double>(sorted.size()))) - 1;
  const auto found = sorted.begin() + std::max<ptrdiff_t>(rank, 0);
  std::nth_element(sorted.begin(), found, sorted.end());
  return std::max(*found, 0.0);
}

std::vector<BatchTimes::Point> BatchTimes::points() const {
  std::map<uint64_t, std::vector<double>> times;
  for (const Bin& bin : bins_) {
    for (const Sample& each : bin.samples) {
      times[uint64_t{1} << bin_of(static_cast<uint64_t>(each.rows))].push_back(each.seconds);
    }
  }
  std::vector<Point> points;
  points.reserve(times.size());
  for (auto& [rows, seconds] : times) points.push_back({rows, lower_median(std::move(seconds))});
  return points;
}

void BatchTimes::record_excess(double excess) {
  if (excesses_.size() < kExcesses) {
    excesses_.push_back(excess);
  } else {
    excesses_[oldest_excess_] = excess;
    oldest_excess_ = (oldest_excess_ + 1) % kExcesses;
  }
}

// Of a batch's time to that expected. Finds out whether the callable has become faster or slower.
void BatchTimes::record_ratio(double ratio) {
  ratios_.push_back(ratio);
  if (ratios_.size() < kRecent) return;
  const double change = lower_median(ratios_);
  if (change < kFaster || change > kSlower) {
    rescale(change);
    ratios_.clear();
  } else {
    ratios_.erase(ratios_.begin());
  }
}

// The last batches were as they are now; those before are taken to have changed as they did.
void BatchTimes::rescale(double factor) {
  for (Bin& bin : bins_) {
    const auto is_known = [this](const Sample& each) { return each.number > rescaled_at_; };
    if (std::none_of(bin.samples.begin(), bin.samples.end(), is_known)) bin = {};
    for (Sample& each : bin.samples) {
      if (each.number + kRecent > batches_ + 1) continue;
      each.seconds = std::clamp(each.seconds * factor, kShortest, kLongest);
    }
    if (!bin.samples.empty()) summarize(bin);
  }
  rescaled_at_ = batches_;
  // What these batches exceeded was the change.
  for (size_t last = 1; last <= std::min(kRecent, excesses_.size()); ++last) {
    excesses_[(oldest_excess_ + excesses_.size() - last) % excesses_.size()] = 0;
  }
  fit_line();
}

void BatchTimes::summarize(Bin& bin) {
  std::vector<double> values(bin.samples.size());
  for (double Sample::* const field : {&Sample::rows, &Sample::cost, &Sample::seconds}) {
    std::transform(bin.samples.begin(), bin.samples.end(), values.begin(),
                   [field](const Sample& sample) { return sample.*field; });
    bin.median.*field = lower_median(values);
  }
}

// The line with the least squares of relative errors that does not fall, and does not begin below 0. Of a single point
// it is level: a batch of another size tells more.
BatchTimes::Line BatchTimes::least_squares(double Sample::* units) const {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const Sample* point : line_points_) {
    const double weight = 1 / (point->seconds * point->seconds), x = point->*units;
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * point->seconds;
    wxt += weight * x * point->seconds;
  }
  const double spread = w * wxx - wx * wx;
  Line line{wt / w, 0, 0};
  if (line_points_.size() > 1 && spread > 1e-9 * w * wxx) {
    line.per_unit = (w * wxt - wx * wt) / spread;
    line.fixed = (wt - line.per_unit * wx) / w;
    if (line.per_unit < 0) line = {wt / w, 0, 0};
    if (line.fixed < 0) line = {0, wxt / wxx, 0};
  }
  for (const Sample* point : line_points_) {
    const double error = (line.fixed + line.per_unit * (point->*units) - point->seconds) / point->seconds;
    line.error += error * error;
  }
  return line;
}

void BatchTimes::fit_line() {
  line_points_.clear();
  for (const Bin& bin : bins_) {
    if (!bin.samples.empty()) line_points_.push_back(&bin.median);
  }
  const Line by_rows = least_squares(&Sample::rows), by_cost = least_squares(&Sample::cost);
  is_by_cost_ = by_cost.error < kMuchBetter * by_rows.error;
  line_ = is_by_cost_ ? by_cost : by_rows;
  double Sample::* const field = is_by_cost_ ? &Sample::cost : &Sample::rows;
  min_units_ = max_units_ = line_points_.front()->*field;
  for (const Sample* point : line_points_) {
    min_units_ = std::min(min_units_, point->*field);
    max_units_ = std::max(max_units_, point->*field);
  }
  least_units_ = min_units_;
  for (const Bin& bin : bins_) {
    for (const Sample& each : bin.samples) least_units_ = std::min(least_units_, each.*field / each.requests);
  }
}

}  // namespace pytriton
