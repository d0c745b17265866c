#include "shared_counters.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>

#include "../frames/descriptor.h"
#include "../frames/failure.h"
#include "../frames/json.h"
#include "clock.h"
#include "metrics.h"

namespace pytriton::http {

namespace {

// Counters of metrics.py
constexpr size_t kMemoryBytes = 2 << 20, kValues = 1 << 17, kScratch = 512;
constexpr size_t kValuesAt = sizeof(uint64_t), kNamesAt = kValuesAt + kValues * sizeof(double);

// The values of one route and model, behind the buckets of its histogram, and those of one request
enum Answered : size_t { kSeconds, kReceived, kSent, kAnswered };
constexpr size_t kRecent = 100, kRecentWidth = 3;
constexpr std::string_view kRoute = "/predict/{model}";

// The names of a model's values are lists in JSON.
std::string key_of(const std::string& model, const std::string& status) {
  std::string key = "[";
  append_json(key, kRoute);
  key += ", ";
  append_json(key, model);
  return key += status + "]";
}

double seconds_since_1970() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

SharedCounters::SharedCounters(const std::string& path, Buckets buckets) : buckets_(std::move(buckets)) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const memory =
      file ? ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  if (memory == MAP_FAILED) throw Failure(Code::unavailable, path + " cannot be mapped: " + std::strerror(errno));
  memory_ = static_cast<char*>(memory);
  values_ = reinterpret_cast<double*>(memory_ + kValuesAt);
  uint64_t used;  // by a server that has ended
  std::memcpy(&used, memory_, sizeof used);
  for (uint64_t offset = 0; offset < std::min<uint64_t>(used, kMemoryBytes - kNamesAt);) {
    const char* const record = memory_ + kNamesAt + offset;
    std::array<uint16_t, 2> sizes;
    std::memcpy(sizes.data(), record, sizeof sizes);
    const auto [length, width] = sizes;
    names_[std::string(record + sizeof sizes, length)] = next_;
    next_ += width;
    offset += sizeof sizes + length;
  }
  in_progress_ = place("in progress", 1);
  values_[in_progress_] = 0;
}

SharedCounters::~SharedCounters() { ::munmap(memory_, kMemoryBytes); }

void SharedCounters::begin() { add_in_progress(1); }

void SharedCounters::end() { add_in_progress(-1); }

void SharedCounters::add_in_progress(double amount) {
  const std::lock_guard<SpinningMutex> lock(mutex_);
  add(in_progress_, amount);
}

void SharedCounters::count(bool is_of_application, const std::string& model, int status, int64_t duration_ns,
                           uint64_t received, uint64_t sent) {
  const double duration_s = static_cast<double>(duration_ns) / static_cast<double>(kSecond_ns);
  const double now_s = seconds_since_1970();
  const std::lock_guard<SpinningMutex> lock(mutex_);
  Places& places = find(model);
  add(places.latencies + bucket_of(buckets_.latency_ns, duration_ns));
  const size_t slot = static_cast<size_t>(values_[places.recent]) % kRecent;
  double* const entry = values_ + places.recent + 1 + slot * kRecentWidth;
  entry[0] = now_s;
  entry[1] = status;
  entry[2] = duration_s;
  add(places.recent);
  if (!is_of_application) return;
  size_t& by_status = places.by_status[status];
  if (!by_status) by_status = place(key_of(model, ", " + std::to_string(status)), 1);
  add(by_status);
  add(places.answered + bucket_of(buckets_.histogram_ns, duration_ns));
  const size_t behind = places.answered + buckets_.histogram_ns.size() + 1;
  add(behind + kSeconds, duration_s);
  add(behind + kReceived, static_cast<double>(received));
  add(behind + kSent, static_cast<double>(sent));
}

void SharedCounters::refuse(int status) {
  const std::lock_guard<SpinningMutex> lock(mutex_);
  size_t& at = refused_[status];
  if (!at) at = place("refused " + std::to_string(status), 1);
  add(at);
}

SharedCounters::Places& SharedCounters::find(const std::string& model) {
  const auto found = models_.find(model);
  if (found != models_.end()) return found->second;
  Places& places = models_[model];
  places.answered = place(key_of(model, ""), buckets_.histogram_ns.size() + 1 + kAnswered);
  places.latencies = place("latencies " + model, buckets_.latency_ns.size() + 1);
  places.recent = place("recent " + model, 1 + kRecent * kRecentWidth);
  return places;
}

// Values that are 0 at first; scratch ones, if there is no room for more.
size_t SharedCounters::place(const std::string& name, size_t width) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  uint64_t used;
  std::memcpy(&used, memory_, sizeof used);
  const std::array<uint16_t, 2> sizes = {static_cast<uint16_t>(name.size()), static_cast<uint16_t>(width)};
  const uint64_t record = sizeof sizes + name.size();
  if (kNamesAt + used + record > kMemoryBytes || next_ + width > kValues - kScratch) return kValues - kScratch;
  char* const at = memory_ + kNamesAt + used;
  std::memcpy(at, sizes.data(), sizeof sizes);
  std::memcpy(at + sizeof sizes, name.data(), name.size());
  used += record;
  __atomic_store_n(reinterpret_cast<uint64_t*>(memory_), used, __ATOMIC_RELEASE);  // now, others see it
  return names_[name] = std::exchange(next_, next_ + width);
}

}  // namespace pytriton::http
