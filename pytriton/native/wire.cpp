#include "wire.h"

#include <algorithm>
#include <cstring>

#include "failure.h"

namespace pytriton {

namespace {

constexpr uint8_t kInline = 1, kRows = 2, kMore = 4, kApart = 8;

#pragma pack(push, 1)
struct Header {
  uint32_t length;
  uint8_t kind, flags;
  uint16_t released;
  uint32_t sequence, requests, tensors, metadata;
  uint64_t region;
};
struct Entry {
  uint16_t name;
  uint8_t dtype, rank;
  uint32_t request;
  uint64_t offset, size;
};
#pragma pack(pop)
static_assert(sizeof(Header) == 32 && sizeof(Entry) == 24, "as the README says");
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

void read_tensors(Reader& reader, Frame& frame, uint32_t tensors) {
  if (tensors > reader.left() / sizeof(Entry)) throw FrameError(std::to_string(tensors) + " tensors do not fit");
  frame.tensors.reserve(tensors);
  for (uint32_t index = 0; index < tensors; ++index) {
    Entry entry;
    reader.take(&entry, 1);
    if (entry.rank > kMostRank || !(entry.request < frame.requests || entry.request == kWholeBatch)) {
      throw FrameError("tensor of rank " + std::to_string(entry.rank) + " for request " +
                       std::to_string(entry.request) + " of " + std::to_string(frame.requests));
    }
    const size_t shape = frame.extents.size();
    frame.extents.resize(shape + entry.rank);
    reader.take(frame.extents.data() + shape, entry.rank);
    frame.tensors.push_back({entry.name, entry.request, entry.dtype, entry.rank, shape, entry.offset, entry.size});
  }
}

// With rows, every tensor has those of all requests; without, it belongs to one of them.
void check_rows(const Frame& frame) {
  uint64_t total = 0;
  for (const uint32_t rows : frame.rows) total += rows;
  for (const Placed& tensor : frame.tensors) {
    const bool whole = tensor.request == kWholeBatch;
    if (whole != frame.has_rows || (whole && (tensor.rank == 0 || frame.shape(tensor)[0] != total))) {
      throw FrameError("a tensor does not have the requests' " + std::to_string(total) + " rows");
    }
  }
}

}  // namespace

uint64_t Outgoing::data_bytes() const {
  uint64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += padded(tensor.size);
  return sum;
}

uint64_t Frame::data_bytes() const {
  uint64_t most = 0;
  for (const Placed& tensor : tensors) {
    uint64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, tensor.size, &end)) throw FrameError("a tensor ends nowhere");
    most = std::max(most, end);
  }
  return most;
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
  append(message, frame.released.data(), 8 * frame.released.size());
  uint64_t offset = 0;
  for (const Tensor& tensor : frame.tensors) {
    const Entry entry{tensor.name,    tensor.dtype, static_cast<uint8_t>(tensor.shape.size()),
                      tensor.request, offset,       tensor.size};
    append(message, &entry, sizeof entry);
    append(message, tensor.shape.data(), 8 * tensor.shape.size());
    offset += padded(tensor.size);
  }
  append(message, frame.rows.data(), 4 * frame.rows.size());
  append(message, frame.metadata.data(), frame.metadata.size());
  if (is_inline && !frame.tensors.empty()) {
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
                      frame.sequence,
                      frame.requests,
                      static_cast<uint32_t>(frame.tensors.size()),
                      static_cast<uint32_t>(frame.metadata.size()),
                      frame.region};
  std::memcpy(message.data(), &header, sizeof header);
}

Frame unpack(std::string_view message) {
  Reader reader(message);
  Header header;
  reader.take(&header, 1);
  if (header.length != message.size()) {
    throw FrameError("a frame of " + std::to_string(header.length) + " bytes arrived as " +
                     std::to_string(message.size()));
  }
  const bool is_inline = header.flags & kInline;
  if (header.kind < 1 || header.kind > 9 || is_inline != (header.region == kNoRegion)) {
    throw FrameError("a frame of kind " + std::to_string(header.kind) + " has flags " + std::to_string(header.flags));
  }
  Frame frame{};
  frame.kind = static_cast<Kind>(header.kind);
  frame.more = header.flags & kMore;
  frame.apart = header.flags & kApart;
  frame.has_rows = header.flags & kRows;
  frame.sequence = header.sequence;
  frame.requests = header.requests;
  frame.region = header.region;
  frame.released.resize(header.released);
  reader.take(frame.released.data(), header.released);
  read_tensors(reader, frame, header.tensors);
  if (frame.has_rows) {
    if (frame.requests > reader.left() / 4) throw FrameError("the requests' rows do not fit");
    frame.rows.resize(frame.requests);
    reader.take(frame.rows.data(), frame.requests);
  }
  check_rows(frame);
  frame.metadata = reader.take_bytes(header.metadata);
  if (is_inline) {
    reader.align();
    frame.data = reader.take_bytes(reader.left());
  }
  return frame;
}

}  // namespace pytriton
