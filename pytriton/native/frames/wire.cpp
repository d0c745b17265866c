#include "wire.h"

#include <algorithm>
#include <cstring>

#include "failure.h"
#include "tensors.h"

namespace pytriton {

namespace {

constexpr uint8_t kInline = 1, kRows = 2, kMore = 4, kApart = 8;

#pragma pack(push, 1)
struct Header {
  uint32_t length;
  uint8_t kind, flags;
  uint16_t released;
  uint32_t number, requests, layout, metadata;
  uint64_t region;
};
#pragma pack(pop)
static_assert(sizeof(Header) == 32, "as the README says");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}

  template <typename Item>
  void take(Item* items, uint64_t count) {
    if (count) std::memcpy(items, take_bytes(count * sizeof(Item)).data(), count * sizeof(Item));
  }

  std::string_view take_bytes(uint64_t size) {
    if (size > left()) throw FrameError("truncated frame of " + std::to_string(message_.size()) + " bytes");
    const std::string_view bytes = message_.substr(at_, size);
    at_ += size;
    return bytes;
  }

  void align() { at_ = std::min<size_t>(padded(at_), message_.size()); }
  size_t left() const { return message_.size() - at_; }

 private:
  std::string_view message_;
  size_t at_ = 0;
};

void append(std::vector<char>& message, const void* bytes, size_t size) {
  const char* first = static_cast<const char*>(bytes);
  message.insert(message.end(), first, first + size);
}

uint64_t product(uint64_t first, uint64_t second) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(first, second, &result) || result > INT64_MAX) throw FrameError("a tensor is too large");
  return result;
}

// Places the tensors of the layout. Throws FrameError if one is larger than memory can be, or the sizes of strings are
// too small for their number.
void place(Frame& frame, Reader sizes) {
  uint64_t total = 0, offset = 0;
  for (const uint32_t rows : frame.rows) total += rows;
  frame.tensors.clear();
  frame.extents.clear();
  frame.data_bytes = 0;
  for (const Layout::Item& item : frame.layout.items()) {
    const bool is_whole = item.request == kWholeBatch;
    const size_t shape = frame.extents.size();
    if (is_whole) frame.extents.push_back(total);
    const auto first = frame.layout.extents().begin() + static_cast<ptrdiff_t>(item.extents);
    frame.extents.insert(frame.extents.end(), first, first + static_cast<ptrdiff_t>(item.rank - is_whole));
    const uint64_t elements = is_whole ? product(item.elements, total) : item.elements;
    uint64_t size = 0;
    if (item.item_bytes) {
      size = product(elements, item.item_bytes);
    } else {
      sizes.take(&size, 1);
      if (elements > size / 4) throw FrameError("the lengths of " + std::to_string(elements) + " strings miss");
    }
    frame.tensors.push_back(
        {item.name, item.request, item.dtype, item.rank, shape, offset, size, elements, item.item_bytes});
    if (size > INT64_MAX - kAlign || offset > INT64_MAX - padded(size)) throw FrameError("a tensor ends nowhere");
    frame.data_bytes = offset + size;
    offset += padded(size);
  }
}

}  // namespace

uint64_t Outgoing::data_bytes() const {
  uint64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += padded(tensor.size);
  return sum;
}

void copy_data(const Outgoing& frame, char* to) {
  for (const Tensor& tensor : frame.tensors) {
    char* at = to;
    for (const Part& part : tensor.parts) {
      if (part.size) std::memcpy(at, part.at, part.size);
      at += part.size;
    }
    to += padded(tensor.size);
  }
}

void pack(const Outgoing& frame, std::vector<char>& message) {
  const bool is_inline = frame.region == kNoRegion;
  message.resize(sizeof(Header));
  for (const Tensor& tensor : frame.tensors) {
    append_item(message, tensor.name, tensor.request, tensor.dtype, tensor.shape);
  }
  const size_t layout = message.size() - sizeof(Header);
  for (const Tensor& tensor : frame.tensors) {
    if (tensor.dtype == kBytes) append(message, &tensor.size, sizeof tensor.size);
  }
  append(message, frame.released.data(), 8 * frame.released.size());
  append(message, frame.rows.data(), 4 * frame.rows.size());
  append(message, frame.metadata.data(), frame.metadata.size());
  if (is_inline && frame.data_bytes()) {
    message.resize(padded(message.size()));
    for (const Tensor& tensor : frame.tensors) {
      for (const Part& part : tensor.parts) append(message, part.at, part.size);
      message.resize(message.size() + padded(tensor.size) - tensor.size);
    }
  }
  const uint8_t flags = (is_inline ? kInline : 0) | (frame.has_rows ? kRows : 0) | (frame.apart ? kApart : 0);
  const Header header{static_cast<uint32_t>(message.size()),
                      static_cast<uint8_t>(frame.kind),
                      flags,
                      static_cast<uint16_t>(frame.released.size()),
                      frame.number,
                      frame.requests,
                      static_cast<uint32_t>(layout),
                      static_cast<uint32_t>(frame.metadata.size()),
                      frame.region};
  std::memcpy(message.data(), &header, sizeof header);
}

void unpack(std::string_view message, Frame& frame) {
  Reader reader(message);
  Header header;
  reader.take(&header, 1);
  if (header.length != message.size()) {
    throw FrameError("a frame of " + std::to_string(header.length) + " bytes arrived as " +
                     std::to_string(message.size()));
  }
  const bool is_inline = header.flags & kInline;
  if (header.kind < 1 || header.kind > static_cast<uint8_t>(Kind::limit) || is_inline != (header.region == kNoRegion)) {
    throw FrameError("a frame of kind " + std::to_string(header.kind) + " has flags " + std::to_string(header.flags));
  }
  frame.kind = static_cast<Kind>(header.kind);
  frame.more = header.flags & kMore;
  frame.apart = header.flags & kApart;
  frame.has_rows = header.flags & kRows;
  frame.number = header.number;
  frame.requests = header.requests;
  frame.region = header.region;
  frame.layout.read(reader.take_bytes(header.layout));
  const Reader sizes(reader.take_bytes(8 * frame.layout.strings()));
  frame.released.resize(header.released);
  reader.take(frame.released.data(), header.released);
  frame.rows.clear();
  if (frame.has_rows) {
    if (frame.requests > reader.left() / 4) throw FrameError("the requests' rows do not fit");
    frame.rows.resize(frame.requests);
    reader.take(frame.rows.data(), frame.requests);
  }
  const bool has_tensors = !frame.layout.items().empty();
  if (frame.layout.requests() > frame.requests || (has_tensors && frame.layout.is_whole() != frame.has_rows)) {
    throw FrameError("a frame of " + std::to_string(frame.requests) + " requests has tensors of others");
  }
  place(frame, sizes);
  frame.metadata = reader.take_bytes(header.metadata);
  frame.data = {};
  if (!is_inline) return;
  if (frame.data_bytes) reader.align();
  frame.data = reader.take_bytes(reader.left());
  if (frame.data_bytes > frame.data.size()) {
    throw FrameError("tensors end at byte " + std::to_string(frame.data_bytes) + " of " +
                     std::to_string(frame.data.size()));
  }
}

}  // namespace pytriton
