#include "memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

namespace pytriton {

namespace {

constexpr double kMaxReserveBytes = 512 << 20, kReserveShare = 0.05;

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number after a word at the beginning of a line; 0 if there is none.
double number_after(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return std::strtod(text.c_str() + at + word.size(), nullptr);
  }
  return 0;
}

// Bytes of addresses that the process may still have; infinity without a limit.
double left_of_addresses() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<double>::infinity();
  const double used = number_after(content("/proc/self/status"), "VmSize:") * 1024;
  return std::max(static_cast<double>(limit.rlim_cur) - used, 0.0);
}

double reserve(double total) { return std::min(kMaxReserveBytes, kReserveShare * total); }

}  // namespace

Memory::Memory() {
  sources_.push_back({"", false});
  std::ifstream groups("/proc/self/cgroup");  // lines such as 0::/path and 4:memory:/path
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const bool is_version_2 = line.compare(0, first, "0") == 0;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (!is_version_2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string root = is_version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    while (path.size() > 1) {
      sources_.push_back({root + path, is_version_2});
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
    sources_.push_back({root, is_version_2});
  }
}

Memory::Amounts Memory::amounts(const Source& source) {
  if (source.folder.empty()) {
    const std::string machine = content("/proc/meminfo");
    return {number_after(machine, "MemAvailable:") * 1024, number_after(machine, "MemTotal:") * 1024};
  }
  const bool two = source.is_version_2;
  const std::string limit = content(source.folder + (two ? "/memory.max" : "/memory.limit_in_bytes"));
  const std::string use = content(source.folder + (two ? "/memory.current" : "/memory.usage_in_bytes"));
  const double most = std::strtod(limit.c_str(), nullptr);  // 0 for "max", and for no file
  if (most <= 0 || use.empty()) return {0, 0};
  // Files that the kernel gives up when memory is needed are part of the use.
  const double files =
      number_after(content(source.folder + "/memory.stat"), two ? "inactive_file" : "total_inactive_file");
  return {most - std::strtod(use.c_str(), nullptr) + files, most};
}

bool Memory::is_short() {
  bool found = false;
  for (Source& source : sources_) {
    const auto [available, total] = amounts(source);
    if (total <= 0) continue;
    if (available >= reserve(total)) source.accepted = false;
    found |= available < reserve(total) / (source.accepted ? 2 : 1);
  }
  return found;
}

double Memory::available() const {
  double least = left_of_addresses();
  for (const Source& source : sources_) {
    const auto [available, total] = amounts(source);
    if (total > 0) least = std::min(least, available);
  }
  return least;
}

void Memory::accept() {
  for (Source& source : sources_) {
    const auto [available, total] = amounts(source);
    if (total > 0 && available < reserve(total)) source.accepted = true;
  }
}

}  // namespace pytriton
