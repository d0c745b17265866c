#include "message_coding.h"

#include <new>

#include "../edge/exchange.h"

namespace pytriton::http {

void AcceptedCodings::add(std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view name = trimmed(list.substr(0, comma));
    gzip |= name == "gzip";
    deflate |= name == "deflate";
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
}

Coding AcceptedCodings::best(std::string_view level) const {
  if (level == "none") return Coding::identity;
  if (gzip && (level == "low" || !deflate)) return Coding::gzip;
  return deflate ? Coding::deflate : Coding::identity;
}

MessageCompression::MessageCompression(MessagePointer message, Coding coding, const std::shared_ptr<Share>& share)
    : message_(std::move(message)),
      charge_(share),
      has_room_(charge_.resize(message_->left()) == Refusal::none),
      deflater_(coding, message_->content()) {}

bool MessageCompression::step() {
  if (!has_room_) return false;
  if (deflater_.step()) return true;
  if (!deflater_.is_complete()) return false;
  std::string text = deflater_.take();
  if (text.size() + kPrefixBytes >= message_->left()) return false;
  try {
    message_->replace_content(std::move(text), std::move(charge_));
  } catch (const std::bad_alloc&) {  // nothing of it was changed
  }
  return false;
}

}  // namespace pytriton::http
