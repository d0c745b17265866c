#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace pytriton {

namespace {
constexpr uint64_t kReserveBytes = uint64_t{64} << 30, kMinReserveBytes = uint64_t{1} << 30;
constexpr uint64_t kGrowBytes = 1 << 20, kTrimLeastBytes = 32 << 20, kPageBytes = 4096;
constexpr unsigned kTrimAfterBatches = 64;

constexpr uint64_t rounded_up(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

// The limit of this process that explains an error; empty if there is none. As "limit_of" in wire/arena.py.
std::string limit_of(int error) {
  if (error != EFBIG && error != ENOMEM) return "";
  rlimit limit{};
  if (getrlimit(error == EFBIG ? RLIMIT_FSIZE : RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  const std::string name = error == EFBIG ? "RLIMIT_FSIZE (ulimit -f)" : "RLIMIT_AS (ulimit -v)";
  return "; " + name + " is " + std::to_string(limit.rlim_cur) + " bytes, raise it";
}
}  // namespace

Arena::Arena() : file_(memfd_create("pytriton-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  for (size_ = kReserveBytes; size_ >= kMinReserveBytes; size_ /= 2) {  // ulimit -v, strict overcommit: less will do
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) continue;
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
    if (memory == MAP_FAILED) continue;
    memory_ = static_cast<char*>(memory);
    madvise(memory, size_, MADV_DONTDUMP);  // a core dump would make a page of memory for each that is reserved
    fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return;
  }
  const int error = errno;
  throw ArenaFull(std::string("no memory can be shared with the worker: ") + std::strerror(error) + limit_of(error));
}

Arena::~Arena() {
  if (memory_) munmap(memory_, size_);
}

uint64_t Arena::allocate(uint64_t size) {
  const std::lock_guard lock(mutex_);
  uint64_t first = 0;
  auto place = regions_.begin();
  for (; place != regions_.end() && place->first - first < size; ++place) first = place->end;
  if (size > size_ || first + padded(size) > size_) {
    throw ArenaFull("no room for a batch of " + std::to_string(size) + " bytes: " + std::to_string(regions_.size()) +
                    " earlier ones are still referenced; copy what the callable keeps");
  }
  const uint64_t end = first + padded(size);
  back(end);
  regions_.insert(place, {first, end});
  return first;
}

void Arena::free(uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](Region each) { return each.first == offset; });
  if (found != regions_.end()) regions_.erase(found);
}

// Makes pages exist, lest a write hits a shortage as SIGBUS; drops them when long unused.
void Arena::back(uint64_t end) {
  peak_ = std::max(peak_, end);
  count();
  if (end <= backed_) return;
  const uint64_t target = std::min(rounded_up(end, kGrowBytes), size_);
  while (fallocate(file_.get(), 0, static_cast<off_t>(backed_), static_cast<off_t>(target - backed_)) != 0) {
    if (errno == EINTR) continue;
    throw ArenaFull("no memory for a batch that ends at byte " + std::to_string(end) + ": " + std::strerror(errno));
  }
  backed_ = target;
}

void Arena::skip() {
  const std::lock_guard lock(mutex_);
  if (backed_ > kTrimLeastBytes) count();
}

void Arena::count() {
  if (++batches_ >= kTrimAfterBatches) trim();
}

void Arena::trim() {
  uint64_t keep = peak_;
  for (const Region& region : regions_) keep = std::max(keep, region.end);
  keep = rounded_up(keep, kPageBytes);
  if (backed_ > keep && backed_ - keep > std::max(kTrimLeastBytes, keep)) {
    if (madvise(memory_ + keep, backed_ - keep, MADV_REMOVE) == 0) backed_ = keep;
  }
  peak_ = batches_ = 0;
}

void PeerMemory::check(uint64_t offset, uint64_t size) const {
  struct stat file{};
  uint64_t end = 0;
  if (fstat(file_.get(), &file) != 0 || __builtin_add_overflow(offset, size, &end) ||
      end > static_cast<uint64_t>(file.st_size) || size > static_cast<uint64_t>(file.st_blocks) * 512) {
    throw FrameError("a region of " + std::to_string(size) + " bytes is not in its arena, at byte " +
                     std::to_string(offset));
  }
}

void PeerMemory::read(uint64_t offset, void* to, uint64_t size) const {
  auto* at = static_cast<char*>(to);
  while (size) {
    if (offset > INT64_MAX) throw FrameError("a region begins nowhere");
    const ssize_t got = pread(file_.get(), at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw FrameError("a region lies beyond its arena, at byte " + std::to_string(offset));
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
}

}  // namespace pytriton
