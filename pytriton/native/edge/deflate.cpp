#include "deflate.h"

#include <algorithm>
#include <climits>

#include "../frames/failure.h"

namespace pytriton::http {

namespace {

constexpr size_t kFirstAnswerRoom = 16 << 10;
constexpr int kFastest = 1;  // of the levels

}  // namespace

Deflater::Deflater(Coding coding, std::vector<iovec> parts) : parts_(std::move(parts)) {
  const int bits = Zlib::kWindowBits + (coding == Coding::gzip ? Zlib::kGzip : 0);
  is_open_ = zlib_ && zlib_->deflate_init(&stream_, kFastest, Zlib::kDeflated, bits, Zlib::kMemoryLevel,
                                          Zlib::kDefaultStrategy, Zlib::kVersion, sizeof stream_) == Zlib::kOk;
}

Deflater::~Deflater() {
  if (is_open_) zlib_->deflate_end(&stream_);
}

bool Deflater::step() {
  if (!is_open_) return false;
  try {
    for (size_t left = kAtOnce; left && part_ < parts_.size();) {
      const iovec& part = parts_[part_];
      const size_t size = std::min(left, part.iov_len - offset_);
      add(part, size);
      left -= size;
      offset_ += size;
      if (offset_ < part.iov_len) continue;
      ++part_;
      offset_ = 0;
    }
    if (part_ < parts_.size()) return true;
    finish();
  } catch (const std::exception&) {
  }
  return false;
}

void Deflater::add(const iovec& part, size_t size) {
  stream_.next_in = static_cast<const char*>(part.iov_base) + offset_;
  stream_.available_in = static_cast<unsigned>(size);
  while (stream_.available_in) deflate(Zlib::kNoFlush);
}

void Deflater::finish() {
  while (deflate(Zlib::kFinish) != Zlib::kStreamEnd) {
  }
  text_.resize(size_);
  is_complete_ = true;
}

int Deflater::deflate(int flush) {
  if (size_ == text_.size()) text_.resize(size_ + std::max(kFirstAnswerRoom, size_ / 2));
  const auto room = static_cast<unsigned>(std::min<size_t>(text_.size() - size_, UINT_MAX));
  stream_.next_out = text_.data() + size_;
  stream_.available_out = room;
  const int result = zlib_->deflate(&stream_, flush);
  size_ += room - stream_.available_out;
  if (result < 0 && result != Zlib::kBufferError) throw Failure(Code::internal, "zlib has failed");
  return result;
}

}  // namespace pytriton::http
