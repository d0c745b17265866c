#include "traffic.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>

#include "../edge/exchange.h"
#include "../edge/route_options.h"
#include "../frames/descriptor.h"
#include "../frames/failure.h"
#include "../frames/json.h"
#include "inference.h"

namespace pytriton::http {

namespace {

// As traffic_file.py has them
constexpr uint64_t kFormat = 1;
enum Word : size_t { kFormatAt, kOpenAt, kValidAt, kWeightsAt, kHead };

constexpr size_t kMostBytes = 1 << 20, kMostTargets = 1024, kOutcomes = 4;
constexpr int kMostCopies = 16;

uint64_t word(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

// A number from 0 to 1 that depends on the key alone, as in traffic.py: FNV-1a, and the last step of MurmurHash3.
double point_of(std::string_view key) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char each : key) value = (value ^ static_cast<unsigned char>(each)) * 0x100000001B3;
  value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD;
  value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53;
  return static_cast<double>((value ^ value >> 33) >> 11) / 9007199254740992.0;
}

double random_point() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>()(generator);
}

bool has_name(const Parameter& parameter, std::string_view name) {
  return std::equal(
      name.begin(), name.end(), parameter.name.begin(), parameter.name.end(), [](unsigned char one, unsigned char other) {
        return std::tolower(one) == std::tolower(other);  // names of headers
      });
}

bool is_file_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos; }

}  // namespace

Traffic::Traffic(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    throw Failure(Code::unavailable, path + " cannot be opened: " + std::strerror(errno));
  size_ = static_cast<size_t>(status.st_size);
  if (size_ < kHead * sizeof(uint64_t) || size_ > kMostBytes) throw FrameError(path + " has an impossible size");
  memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory_ == MAP_FAILED) throw Failure(Code::unavailable, path + " cannot be mapped: " + std::strerror(errno));
  try {
    words_ = static_cast<uint64_t*>(memory_);
    const uint64_t targets = words_[kWeightsAt];
    if (words_[kFormatAt] != kFormat || targets < 1 || targets > kMostTargets)
      throw FrameError(path + " has another format");
    const size_t counters = std::max<size_t>(targets, kOutcomes), numbers = kHead + 2 * targets + counters;
    if (size_ < numbers * sizeof(uint64_t)) throw FrameError(path + " is too short");
    counters_ = words_ + kHead + 2 * targets;
    const char* const text = reinterpret_cast<const char*>(words_ + numbers);
    const Json options = Json::parse({text, size_ - numbers * sizeof(uint64_t)});
    for (const Json& each : options["targets"].list()) targets_.push_back(each.text());
    if (targets_.size() != targets) throw FrameError(path + " has another number of targets");
    if (options["kind"].text() == "shadow") {
      const int64_t priority = options["priority"].integer();
      comparison_ = Comparison{static_cast<uint64_t>(priority), options["rtol"].number(), options["atol"].number()};
      if (targets != 2 || priority < 0) throw FrameError(path + " is wrong");
    } else if (!options["by"].is(Json::Kind::null)) {
      by_ = options["by"].text();
    }
  } catch (...) {
    ::munmap(memory_, size_);
    throw;
  }
}

Traffic::~Traffic() { ::munmap(memory_, size_); }

const double* Traffic::weights() const {
  const size_t valid = word(words_ + kValidAt) ? 1 : 0;
  return reinterpret_cast<const double*>(words_ + kHead + valid * targets_.size());
}

Traffic::Key Traffic::key_of(const InferenceRequest& request, std::string& key) const {
  if (!by_) return Key::absent;
  const auto& all = request.parameters;
  auto found = std::find_if(all.rbegin(), all.rend(), [&](const Parameter& each) { return each.name == *by_; });
  if (found == all.rend())
    found = std::find_if(all.rbegin(), all.rend(), [&](const Parameter& each) { return has_name(each, *by_); });
  if (found == all.rend()) return Key::absent;
  switch (found->type) {
    case TRITONSERVER_PARAMETER_STRING:
      key = found->text;
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
  if (!word(words_ + kOpenAt)) return std::nullopt;
  if (comparison_) return 0;
  std::string text;
  const Key key = key_of(request, text);
  if (key == Key::unknown) return std::nullopt;
  const double* const all = weights();
  double point = key == Key::absent ? random_point() : point_of(text);
  point *= std::accumulate(all, all + targets_.size(), 0.0);
  std::optional<size_t> chosen;
  for (size_t target = 0; target < targets_.size(); ++target) {
    if (!(all[target] > 0)) continue;
    chosen = target;  // the last one if the sum was rounded up
    point -= all[target];
    if (point < 0) break;
  }
  return chosen;
}

bool Traffic::begin_copy() {
  if (random_point() >= weights()[1]) return false;
  if (copies_++ < kMostCopies) return true;
  end_copy(kDropped);
  return false;
}

void Traffic::end_copy(std::optional<Outcome> outcome) {
  if (outcome) count(*outcome);
  --copies_;
}

std::shared_ptr<Traffic> open_traffic(const std::string& name) {
  const std::string& folder = route_options().traffic;
  if (folder.empty() || !is_file_name(name)) return nullptr;
  try {
    return std::make_shared<Traffic>(folder + "/" + name);
  } catch (const Failure&) {
    return nullptr;  // of a program on another machine, perhaps: the model's callable passes requests on
  }
}

}  // namespace pytriton::http
