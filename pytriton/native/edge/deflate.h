// What is sent, compressed in steps.
#pragma once

#include <sys/uio.h>

#include <string>
#include <vector>

#include "zlib.h"

namespace pytriton::http {

enum class Coding { identity, gzip, deflate };

// Compresses bytes that lie in several places, and stay there.
class Deflater {
 public:
  static constexpr size_t kAtOnce = 64 << 10;  // bytes that are compressed in about a millisecond

  Deflater(Coding coding, std::vector<iovec> parts);
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  bool step();                                       // false: it has ended
  bool is_complete() const { return is_complete_; }  // false when it has ended: there is no zlib, or no memory
  std::string take() { return std::move(text_); }

 private:
  void add(const iovec& part, size_t size);
  void finish();
  int deflate(int flush);

  const Zlib* const zlib_ = Zlib::get();
  ZlibStream stream_{};
  bool is_open_ = false, is_complete_ = false;
  const std::vector<iovec> parts_;
  size_t part_ = 0, offset_ = 0;
  std::string text_;
  size_t size_ = 0;
};

}  // namespace pytriton::http
