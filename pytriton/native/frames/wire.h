// The wire format: one frame each way per batch; pytriton/wire/README.md has the layout. Nothing here trusts a byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout.h"

namespace pytriton {

enum class Kind : uint8_t { request = 1, response, error, spill, end, cancel, release, ask, goodbye, limit };

constexpr uint64_t kNoRegion = UINT64_MAX;
constexpr size_t kAlign = 64;
constexpr size_t kInlineLimitBytes = 32 << 10;
constexpr size_t kMaxMessageBytes = 64 << 10;

constexpr uint64_t padded(uint64_t size) { return (size + kAlign - 1) / kAlign * kAlign; }

// Bytes in memory that somebody else owns.
struct Part {
  const void* at;
  uint64_t size;
};

// One tensor to send.
struct Tensor {
  uint16_t name;     // index of its name in the model's inputs
  uint32_t request;  // index of the request that it belongs to, or kWholeBatch
  uint8_t dtype;
  std::vector<int64_t> shape;
  uint64_t size;            // bytes
  std::vector<Part> parts;  // the data when put one after the other
};

// A frame to send.
struct Outgoing {
  Kind kind = Kind::request;
  uint32_t number = 0;
  uint32_t requests = 0;
  bool apart = false;
  bool has_rows = false;
  std::vector<uint32_t> rows;
  std::string metadata;
  std::vector<uint64_t> released;
  std::vector<Tensor> tensors;
  uint64_t region = kNoRegion;
  std::vector<std::string> encoded;  // memory of some parts; nothing may be added once a part is there

  uint64_t data_bytes() const;  // that the tensors take, each padded
};

// Where one received tensor lies.
struct Placed {
  uint16_t name;
  uint32_t request;
  uint8_t dtype;
  unsigned rank;
  size_t shape;  // where its extents begin in Frame::extents
  uint64_t offset, size;
  uint64_t elements, item_bytes;  // 0 bytes for BYTES
};

// A received frame, whose numbers are checked: each numeric tensor has the size of its shape and ends within the data,
// if those travelled inline, else within data_bytes.
struct Frame {
  Kind kind{};
  bool more = false, apart = false, has_rows = false;
  uint32_t number = 0, requests = 0;
  uint64_t region = kNoRegion;
  std::vector<uint64_t> released;
  std::vector<Placed> tensors;
  std::vector<uint64_t> extents;
  std::vector<uint32_t> rows;
  std::string_view metadata;
  std::string_view data;    // if it travelled inline
  uint64_t data_bytes = 0;  // to the end of the last tensor
  Layout layout;

  const uint64_t* shape(const Placed& tensor) const { return extents.data() + tensor.shape; }
};

// Copies the data of the tensors to where they are to lie, each padded.
void copy_data(const Outgoing& frame, char* to);

// Replaces the message by the frame; the tensors' data are part of it unless the frame has a region.
void pack(const Outgoing& frame, std::vector<char>& message);

// Replaces the frame by that of a message, whose views stay valid as long as the message does. Throws FrameError.
void unpack(std::string_view message, Frame& frame);

}  // namespace pytriton
