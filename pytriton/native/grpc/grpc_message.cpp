#include "grpc_message.h"

#include <algorithm>

#include "proto.h"

namespace pytriton::http {

namespace {

void write_size(char* prefix, size_t size) {
  for (size_t byte = 0; byte < sizeof(uint32_t); ++byte) prefix[1 + byte] = static_cast<char>(size >> (24 - 8 * byte));
}

}  // namespace

void GrpcMessage::finish(unsigned field) {
  size_t inner = text.size();
  for (const Insert& each : inserts_) inner += each.part.iov_len;
  std::string head(kPrefixBytes, '\0');
  if (field) ProtoWriter(head).size(field, inner);
  const size_t size = head.size() - kPrefixBytes + inner;
  if (size > UINT32_MAX) throw Failure(Code::unavailable, "the answer has more than 4 GiB");
  write_size(head.data(), size);
  text.insert(0, head);
  size_t begin = 0;
  const auto append_text = [&](size_t end) {
    if (end > begin) parts_.push_back({text.data() + begin, end - begin});
    begin = end;
  };
  for (const Insert& each : inserts_) {
    append_text(each.at + head.size());
    if (each.part.iov_len) parts_.push_back(each.part);
  }
  append_text(text.size());
  left_ = kPrefixBytes + size;
}

std::vector<iovec> GrpcMessage::content() const {
  std::vector<iovec> parts = parts_;
  parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + kPrefixBytes;
  parts.front().iov_len -= kPrefixBytes;
  return parts;
}

void GrpcMessage::replace_content(std::string compressed, Charge&& charge) {
  std::string prefix(kPrefixBytes, '\1');
  write_size(prefix.data(), compressed.size());
  compressed.insert(0, prefix);
  text = std::move(compressed);
  charge_ = std::move(charge);
  parts_.assign(1, {text.data(), text.size()});
  inserts_.clear();
  owners_.clear();
  left_ = text.size();
}

size_t GrpcMessage::take(size_t most, std::string& to, iovec& part) {
  const iovec& current = parts_[part_];
  char* const at = static_cast<char*>(current.iov_base) + of_part_;
  const size_t taken = std::min(most, current.iov_len - of_part_);
  if (current.iov_len <= kCopiedPart) {
    to.append(at, taken);
  } else {
    part = {at, taken};
  }
  left_ -= taken;
  of_part_ += taken;
  if (of_part_ == current.iov_len) {
    of_part_ = 0;
    ++part_;
  }
  return taken;
}

}  // namespace pytriton::http
