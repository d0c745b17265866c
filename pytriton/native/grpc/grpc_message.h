// A message as gRPC sends it, with memory of others in it that is not copied.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../kserve/inference.h"

namespace pytriton::http {

constexpr size_t kPrefixBytes = 5;        // of gRPC, before each message: whether it is compressed, and its size
constexpr size_t kCopiedPart = 16 << 10;  // bytes; a larger part is sent from where it is

class GrpcMessage {
 public:
  std::string text;

  // Bytes that stand behind the text so far.
  void insert(std::string_view bytes, OutputMemory&& owner) {
    inserts_.push_back({text.size(), {const_cast<char*>(bytes.data()), bytes.size()}});
    owners_.push_back(std::move(owner));
  }

  // To be called once, before it is sent. `field`: that of an outer message, whose only one it is; 0: none.
  void finish(unsigned field = 0);

  size_t left() const { return left_; }  // bytes to send

  // After finish(): what is compressed, and what is sent in its place.
  std::vector<iovec> content() const;
  void replace_content(std::string compressed, Charge&& charge);

  // Appends some of those that are left to `text`, as long as they are short, or gives them; returns how many.
  size_t take(size_t most, std::string& to, iovec& part);

 private:
  struct Insert {
    size_t at;
    iovec part;
  };
  std::vector<Insert> inserts_;
  std::vector<OutputMemory> owners_;
  std::vector<iovec> parts_;
  Charge charge_;  // of what was compressed
  size_t left_ = 0, part_ = 0, of_part_ = 0;
};
using MessagePointer = std::shared_ptr<GrpcMessage>;

inline MessagePointer message_of(std::string text) {
  auto message = std::make_shared<GrpcMessage>();
  message->text = std::move(text);
  message->finish();
  return message;
}

}  // namespace pytriton::http
