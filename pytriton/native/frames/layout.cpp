#include "layout.h"

#include <algorithm>
#include <cstring>

#include "failure.h"
#include "tensors.h"

namespace pytriton {

namespace {

#pragma pack(push, 1)
struct Entry {
  uint16_t name;
  uint8_t dtype, rank;
  uint32_t request;
};
#pragma pack(pop)
static_assert(sizeof(Entry) == 8, "as the README says");

}  // namespace

void Layout::read(std::string_view encoded) {
  if (encoded == encoded_) return;
  encoded_ = encoded;
  try {
    parse();
  } catch (...) {  // none of it is to be found again
    encoded_.clear();
    items_.clear();
    throw;
  }
}

void Layout::parse() {
  items_.clear();
  extents_.clear();
  strings_ = 0;
  requests_ = 0;
  size_t whole = 0;
  for (size_t at = 0; at < encoded_.size();) {
    Entry entry;
    if (encoded_.size() - at < sizeof entry) throw FrameError("a layout is truncated");
    std::memcpy(&entry, encoded_.data() + at, sizeof entry);
    at += sizeof entry;
    const bool is_whole = entry.request == kWholeBatch;
    if (entry.rank > kMaxRank || entry.rank < is_whole) {
      throw FrameError("tensor of rank " + std::to_string(entry.rank) + " for request " +
                       std::to_string(entry.request));
    }
    const uint64_t item_bytes = item_size(entry.dtype);
    if (!item_bytes && entry.dtype != kBytes) throw FrameError("unknown dtype code " + std::to_string(entry.dtype));
    const size_t count = entry.rank - size_t{is_whole}, first = extents_.size();
    if (encoded_.size() - at < 8 * count) throw FrameError("a layout is truncated");
    extents_.resize(first + count);
    if (count) std::memcpy(extents_.data() + first, encoded_.data() + at, 8 * count);
    at += 8 * count;
    const uint64_t elements = pytriton::count(extents_.data() + first, static_cast<unsigned>(count));
    items_.push_back({entry.name, entry.request, entry.dtype, entry.rank, first, elements, item_bytes});
    whole += is_whole;
    strings_ += !item_bytes;
    if (!is_whole) requests_ = std::max(requests_, uint64_t{entry.request} + 1);
  }
  if (whole && whole != items_.size()) {
    throw FrameError("a frame has tensors of the whole batch beside those of single requests");
  }
  is_whole_ = whole > 0;
}

void append_item(std::vector<char>& layout, uint16_t name, uint32_t request, uint8_t dtype,
                 const std::vector<int64_t>& shape) {
  const Entry entry{name, dtype, static_cast<uint8_t>(shape.size()), request};
  const size_t skipped = request == kWholeBatch, extents = 8 * (shape.size() - skipped), at = layout.size();
  layout.resize(at + sizeof entry + extents);
  std::memcpy(layout.data() + at, &entry, sizeof entry);
  if (extents) std::memcpy(layout.data() + at + sizeof entry, shape.data() + skipped, extents);
}

}  // namespace pytriton
