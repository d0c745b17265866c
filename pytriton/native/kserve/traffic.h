// A model that passes its requests on to others (pytriton/traffic.py): the edge sends them to those others itself. What
// it has to know for that, and what it counts, are in a file that the program maps, too
// (pytriton/composition/traffic_file.py).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pytriton::http {

struct InferenceRequest;

// How the answers of a Shadow's two models are compared: as numpy.allclose() does, with floating point numbers.
struct Comparison {
  uint64_t priority = 0;  // of copies; 0: the model has none
  double rtol = 0, atol = 0;
};

// For any thread.
class Traffic {
 public:
  enum Outcome : size_t { kSame, kDifferent, kFailed, kDropped };  // of a copy, in the order of counters

  // Throws Failure if the file cannot be mapped, FrameError if it is wrong.
  explicit Traffic(const std::string& path);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // The model that gets a request, by its place in targets(). None: the request is left to the model's callable.
  std::optional<size_t> choose(const InferenceRequest& request) const;

  const std::string& model() const { return model_; }  // that passes its requests on, ...
  int64_t version() const { return version_; }         // ... and its version
  const std::vector<std::string>& targets() const { return targets_; }
  const std::optional<Comparison>& comparison() const { return comparison_; }  // of a Shadow

  void count(size_t counter) { __atomic_add_fetch(counters_ + counter, 1, __ATOMIC_RELAXED); }
  void uncount(size_t counter) { __atomic_sub_fetch(counters_ + counter, 1, __ATOMIC_RELAXED); }

  bool wants_copy() const;  // of a request: by chance

  // Of a copy that is sent now; false if there are too many. `bytes`: that it has reserved.
  bool take_place();
  bool reserve(uint64_t bytes);
  void give_place_back(uint64_t bytes);

  bool may_report() { return reported_++ < kMostReports; }  // the difference of a copy

 private:
  // Of a key, whose value decides; none without a key, or if its text may be another one in Python.
  enum class Key { absent, present, unknown };
  Key key_of(const InferenceRequest& request, std::string& key) const;
  std::vector<double> weights() const;
  bool take_turn();  // whether there were not too many copies just now
  static constexpr uint64_t kMostReports = 3;

  std::string model_;
  int64_t version_ = 0;
  std::vector<std::string> targets_;
  std::optional<std::string> by_;
  std::optional<Comparison> comparison_;
  void* memory_ = nullptr;
  size_t size_ = 0;
  uint64_t *words_ = nullptr, *counters_ = nullptr;  // in the memory
  std::atomic<int> copies_{0};                       // in flight
  std::atomic<int64_t> next_copy_at_{0};             // nanoseconds, if they came at their highest rate
  std::atomic<uint64_t> reported_{0};                // differences
  std::atomic<uint64_t> bytes_{0};                   // of copies
};

// The member of a model's configuration that names its file in the folder of such files.
constexpr const char* kTrafficParameter = "pytriton_traffic";

// That of the file of the given name; always the same, as long as the file is there. Null if it cannot be used.
std::shared_ptr<Traffic> find_traffic(const std::string& name);

}  // namespace pytriton::http
