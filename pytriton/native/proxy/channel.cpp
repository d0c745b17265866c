#include "channel.h"

#include <cstring>

#include "../frames/failure.h"

namespace pytriton {

void Reply::read(uint64_t offset, void* to, uint64_t size) const {
  if (has_addresses_) {
    if (size) std::memcpy(to, reinterpret_cast<const void*>(offset), size);  // NOLINT(performance-no-int-to-ptr)
  } else if (frame.region != kNoRegion) {
    uint64_t at = 0;
    if (__builtin_add_overflow(frame.region, offset, &at)) throw FrameError("a region ends nowhere");
    memory_->read(at, to, size);
  } else {
    if (offset > frame.data.size() || size > frame.data.size() - offset) throw FrameError("a tensor ends nowhere");
    if (size) std::memcpy(to, frame.data.data() + offset, size);
  }
}

}  // namespace pytriton
