// The layout of a message: which tensors it holds, without their data; pytriton/wire/README.md has the picture. The
// batches of a model have few layouts: one that is like the last one is not parsed again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pytriton {

constexpr uint32_t kWholeBatch = UINT32_MAX;
constexpr unsigned kMaxRank = 32;

class Layout {
 public:
  // One entry. A tensor of the whole batch has the requests' rows as its first extent, which is not part of the layout.
  struct Item {
    uint16_t name;     // index in the model's inputs or outputs
    uint32_t request;  // index of the request that the tensor belongs to, or kWholeBatch
    uint8_t dtype;
    unsigned rank;        // with the first extent
    size_t extents;       // where those that the layout has begin in extents()
    uint64_t elements;    // of the tensor, or of a row
    uint64_t item_bytes;  // 0 for BYTES
  };

  // Throws FrameError unless the bytes are a layout.
  void read(std::string_view encoded);

  const std::vector<Item>& items() const { return items_; }
  const std::vector<uint64_t>& extents() const { return extents_; }
  bool is_whole() const { return is_whole_; }      // whether tensors hold the rows of all requests
  size_t strings() const { return strings_; }      // number of BYTES tensors, whose sizes a frame tells
  uint64_t requests() const { return requests_; }  // that a frame must have at least

 private:
  void parse();

  std::string encoded_;
  std::vector<Item> items_;
  std::vector<uint64_t> extents_;
  bool is_whole_ = false;
  size_t strings_ = 0;
  uint64_t requests_ = 0;
};

// Appends an entry; of a tensor of the whole batch, the shape's first extent is left out.
void append_item(std::vector<char>& layout, uint16_t name, uint32_t request, uint8_t dtype,
                 const std::vector<int64_t>& shape);

}  // namespace pytriton
