#include "traffic.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>

#include "../edge/clock.h"
#include "../edge/exchange.h"
#include "../edge/route_options.h"
#include "../frames/descriptor.h"
#include "../frames/handles.h"
#include "../frames/json.h"
#include "inference.h"

namespace pytriton::http {

namespace {

// As traffic_file.py has them
constexpr uint64_t kFormat = 1;
enum Place : size_t { kFormatAt, kOpenAt, kValidAt, kWeightsAt, kCountersAt, kHead };

constexpr size_t kMostFileBytes = 1 << 20, kMostTargets = 1024, kOutcomes = 4;
constexpr size_t kMostCopied = 1 << 20;          // bytes of inputs, which are copied while other connections wait
constexpr uint64_t kMostOfCopies = 64ULL << 20;  // bytes that all copies of a Shadow take
constexpr const char* kCallersParameter = "pytriton_callers";  // pytriton/constants.py
constexpr int kMostCopies = 16;
// Copies come alone, so that each costs more than a request that is merged with others. At this rate, they take a few
// percent of a processor.
constexpr int64_t kCopyInterval_ns = kSecond_ns / 100;

uint64_t load(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

// A number from 0 to 1 that depends on the key alone, as in traffic.py: FNV-1a, and the last step of MurmurHash3.
double point_of(std::string_view key) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char each : key) value = (value ^ static_cast<unsigned char>(each)) * 0x100000001B3;
  value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD;
  value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53;
  return static_cast<double>((value ^ value >> 33) >> 11) / 9007199254740992.0;
}

double random_point() {
  thread_local std::mt19937_64 generator{static_cast<uint64_t>(now_ns()) ^ reinterpret_cast<uintptr_t>(&errno)};
  return std::uniform_real_distribution<double>()(generator);
}

bool has_name(const Parameter& parameter, std::string_view name) {
  return std::equal(name.begin(), name.end(), parameter.name.begin(), parameter.name.end(),
                    [](unsigned char one, unsigned char other) {
                      return std::tolower(one) == std::tolower(other);  // names of headers
                    });
}

// Whether a model waits for the request already, as its callable says: it would wait for itself.
bool is_caller(const std::string& model, const InferenceRequest& request) {
  const std::string name = " " + model + " ";
  return std::any_of(request.parameters.begin(), request.parameters.end(), [&](const Parameter& each) {
    return each.name == kCallersParameter && (each.text + " ").find(name) != std::string::npos;
  });
}

bool is_file_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos; }

}  // namespace

Traffic::Traffic(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0)
    throw Failure(Code::unavailable, path + " cannot be opened: " + std::strerror(errno));
  size_ = static_cast<size_t>(status.st_size);
  if (size_ < kHead * sizeof(uint64_t) || size_ > kMostFileBytes) throw FrameError(path + " has an impossible size");
  memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory_ == MAP_FAILED) throw Failure(Code::unavailable, path + " cannot be mapped: " + std::strerror(errno));
  try {
    words_ = static_cast<uint64_t*>(memory_);
    const uint64_t targets = words_[kWeightsAt], counters = words_[kCountersAt];
    if (words_[kFormatAt] != kFormat || targets < 1 || targets > kMostTargets || counters > kMostTargets)
      throw FrameError(path + " has another format");
    const size_t numbers = kHead + 2 * targets + counters;
    if (size_ < numbers * sizeof(uint64_t)) throw FrameError(path + " is too short");
    counters_ = words_ + kHead + 2 * targets;
    const char* const text = reinterpret_cast<const char*>(words_ + numbers);
    const Json options = Json::parse({text, size_ - numbers * sizeof(uint64_t)});
    model_ = options["model"].text();
    version_ = options["version"].integer();
    for (const Json& each : options["targets"].list()) targets_.push_back(each.text());
    if (options["kind"].text() == "shadow") {
      const int64_t priority = options["priority"].integer();
      comparison_ = Comparison{static_cast<uint64_t>(priority), options["rtol"].number(), options["atol"].number()};
      if (targets != 2 || priority < 0) throw FrameError(path + " has no two models");
    } else if (!options["by"].is(Json::Kind::null)) {
      by_ = options["by"].text();
    }
    if (targets_.size() != targets || counters != (comparison_ ? kOutcomes : targets))
      throw FrameError(path + " has other numbers than names");
  } catch (...) {
    ::munmap(memory_, size_);
    throw;
  }
}

Traffic::~Traffic() { ::munmap(memory_, size_); }

std::vector<double> Traffic::weights() const {
  std::vector<double> found(targets_.size());
  for (uint64_t valid = load(words_ + kValidAt), before = ~valid; valid != before;) {
    for (size_t index = 0; index < found.size(); ++index) {
      const uint64_t bits = load(words_ + kHead + (valid & 1) * found.size() + index);
      std::memcpy(&found[index], &bits, sizeof bits);
    }
    before = std::exchange(valid, load(words_ + kValidAt));  // another one: the list may have been written meanwhile
  }
  return found;
}

Traffic::Key Traffic::key_of(const InferenceRequest& request, std::string& key) const {
  if (!by_) return Key::absent;
  const auto& all = request.parameters;
  const auto last = [&](const std::string& name) {  // value, which counts
    return std::find_if(all.rbegin(), all.rend(), [&](const Parameter& each) { return each.name == name; });
  };
  auto found = last(*by_);
  if (found == all.rend()) {
    const auto first =
        std::find_if(all.begin(), all.end(), [&](const Parameter& each) { return has_name(each, *by_); });
    if (first == all.end()) return Key::absent;
    found = last(first->name);
  }
  switch (found->type) {
    case TRITONSERVER_PARAMETER_STRING:
      key.assign(found->text, 0, found->text.find('\0'));  // as the server takes it
      return Key::present;
    case TRITONSERVER_PARAMETER_INT:
      key = std::to_string(found->integer);
      return Key::present;
    case TRITONSERVER_PARAMETER_BOOL:
      key = found->flag ? "True" : "False";
      return Key::present;
    default:
      return Key::unknown;
  }
}

std::optional<size_t> Traffic::choose(const InferenceRequest& request) const {
  if (!load(words_ + kOpenAt)) return std::nullopt;
  if (comparison_) {
    uint64_t bytes = 0;
    for (const Input& input : request.inputs) bytes += input.size;
    if (bytes > kMostCopied || is_caller(targets_[0], request)) return std::nullopt;
    return 0;
  }
  std::string text;
  const Key key = key_of(request, text);
  if (key == Key::unknown) return std::nullopt;
  const std::vector<double> all = weights();
  double point = key == Key::absent ? random_point() : point_of(text);
  point *= std::accumulate(all.begin(), all.end(), 0.0);
  std::optional<size_t> chosen;
  for (size_t target = 0; target < targets_.size(); ++target) {
    if (!(all[target] > 0)) continue;
    chosen = target;  // the last one if the sum was rounded up
    point -= all[target];
    if (point < 0) break;
  }
  if (chosen && is_caller(targets_[*chosen], request)) return std::nullopt;
  return chosen;
}

bool Traffic::wants_copy() const { return random_point() < weights()[1]; }

bool Traffic::take_place() {
  if (copies_++ < kMostCopies && take_turn()) return true;
  --copies_;
  return false;
}

bool Traffic::take_turn() {
  const int64_t now = now_ns(), earliest = now - (kMostCopies - 1) * kCopyInterval_ns;
  int64_t next = next_copy_at_.load(std::memory_order_relaxed), turn = 0;
  do {
    turn = std::max(next, earliest);
    if (turn > now) return false;
  } while (!next_copy_at_.compare_exchange_weak(next, turn + kCopyInterval_ns, std::memory_order_relaxed));
  return true;
}

bool Traffic::reserve(uint64_t bytes) {
  if (bytes_.fetch_add(bytes) + bytes <= kMostOfCopies) return true;
  bytes_ -= bytes;
  return false;
}

void Traffic::give_place_back(uint64_t bytes) {
  bytes_ -= bytes;
  --copies_;
}

std::shared_ptr<Traffic> find_traffic(const std::string& name) {
  static std::mutex mutex;
  static auto* const found = new std::map<std::string, std::shared_ptr<Traffic>>;  // is used while the process ends
  const std::string path = route_options().traffic + "/" + name;
  if (route_options().traffic.empty() || !is_file_name(name)) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto known = found->find(path); known != found->end()) return known->second;
  for (auto each = found->begin(); each != found->end();)
    each = ::access(each->first.c_str(), F_OK) == 0 ? std::next(each) : found->erase(each);
  if (::access(path.c_str(), F_OK) != 0) return nullptr;  // of a program on another machine
  try {
    return (*found)[path] = std::make_shared<Traffic>(path);
  } catch (const std::exception& error) {
    found->erase(path);
    log_warning(std::string(error.what()) + ", so that the model's callable passes its requests on");
    return nullptr;
  }
}

}  // namespace pytriton::http
