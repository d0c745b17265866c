// Memory shared with the worker: each side lays its large tensors out in a memory file of its own. A batch occupies one
// region; the worker tells when it has finished with it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "descriptor.h"
#include "wire.h"

namespace pytriton {

// Our own. The worker cannot shrink it, so that writing here never ends in SIGBUS. For any thread.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int fd() const { return file_.get(); }
  char* at(uint64_t offset) const { return memory_ + offset; }

  // Takes a region whose pages exist; returns its offset, a multiple of kAlign. Throws ArenaFull.
  uint64_t allocate(uint64_t size);
  // Counts a batch that travels without a region, as those with one are counted: what those took is not needed for it.
  void skip();
  // Gives a region back; unknown offsets are ignored.
  void free(uint64_t offset);

 private:
  struct Region {
    uint64_t first, end;
  };
  void back(uint64_t end);
  void count();
  void trim();

  Descriptor file_;
  char* memory_ = nullptr;
  uint64_t size_ = 0;
  std::mutex mutex_;
  std::vector<Region> regions_;  // sorted
  uint64_t backed_ = 0;          // bytes from the start for which pages exist
  uint64_t peak_ = 0;            // highest end among the last batches
  unsigned batches_ = 0;
};

// The worker's. It is read through the kernel and never mapped, as a worker may shrink it at any time.
class PeerMemory {
 public:
  explicit PeerMemory(Descriptor file) : file_(std::move(file)) {}

  // Throws FrameError if a region ends beyond it, or is larger than the memory that really exists: an arena is mostly
  // holes, and nobody shall have us make room for those.
  void check(uint64_t offset, uint64_t size) const;
  // Copies bytes out of it. Throws FrameError if they are not there.
  void read(uint64_t offset, void* to, uint64_t size) const;

 private:
  Descriptor file_;
};

}  // namespace pytriton
