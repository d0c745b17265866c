// How long a model's batches take, learned from those that were answered.
//
// Batches are sorted into bins by their cost, each twice as wide as the one before. A bin remembers the last ones only,
// and its median is a point of a straight line: time = fixed + per_unit * units, where units are rows, or the cost if
// that explains the times better. All points move at once when the last batches say that the callable has become faster
// or slower; a bin without a batch between two such changes is forgotten.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pytriton {

struct BatchSize {
  uint64_t rows = 0;
  uint64_t cost = 0;  // rows times that of the most costly row, as if all were padded to it
};

class BatchTimes {
 public:
  // Seconds that batches with so many rows, a power of two, and less than twice as many take; for pages.
  struct Point {
    uint64_t rows;
    double seconds;
  };

  void add(const BatchSize& size, size_t requests, double seconds);
  bool is_known() const { return !line_points_.empty(); }

  // Seconds. By how much a share of the last batches, such as 0.99, has exceeded expected() at most.
  double expected(const BatchSize& size) const { return line_.fixed + line_.per_unit * units(size); }
  double excess(double share) const;

  double units(const BatchSize& size) const { return static_cast<double>(is_by_cost_ ? size.cost : size.rows); }
  double fixed() const { return line_.fixed; }
  double per_unit() const { return line_.per_unit; }
  double min_units() const { return min_units_; }
  double max_units() const { return max_units_; }
  // Of a small request: the least that the requests of a batch have had in the mean.
  double least_units() const { return least_units_; }
  std::vector<Point> points() const;

 private:
  static constexpr size_t kBins = 64;    // of costs of up to 64 bits
  static constexpr size_t kSamples = 9;  // of a bin
  static constexpr size_t kExcesses = 128;
  static constexpr size_t kRecent = 5;  // batches whose median says that all times have changed

  struct Sample {
    double rows, cost, seconds, requests;
    uint64_t number;
  };
  struct Bin {
    std::vector<Sample> samples;
    size_t next = 0;
    Sample median{};  // of each field alone
  };
  struct Line {
    double fixed, per_unit, error;
  };

  void record_excess(double excess);
  void record_ratio(double ratio);
  void rescale(double factor);
  static void summarize(Bin& bin);
  Line least_squares(double Sample::* units) const;
  void fit_line();

  std::array<Bin, kBins> bins_;
  std::vector<const Sample*> line_points_;
  uint64_t batches_ = 0, rescaled_at_ = 0;
  std::vector<double> excesses_;  // a ring, as are the next
  size_t oldest_excess_ = 0;
  std::vector<double> ratios_;  // of the last batches
  Line line_{};
  double min_units_ = 0, max_units_ = 0, least_units_ = 0;
  bool is_by_cost_ = false;
};

}  // namespace pytriton
