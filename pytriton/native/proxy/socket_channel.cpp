#include "socket_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../frames/failure.h"

namespace pytriton {

namespace {
constexpr size_t kMaxReleased = 1024;
constexpr uint32_t kReportTaken = 8;

[[noreturn]] void gone() {
  if (errno == ECONNRESET) throw Unread(std::strerror(errno));
  throw PeerGone(std::strerror(errno));
}

// Whether it was sent; without MSG_DONTWAIT, it always is.
bool send_bytes(int socket, const std::vector<char>& message, int flags) {
  while (::send(socket, message.data(), message.size(), MSG_NOSIGNAL | flags) < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) gone();
  }
  return true;
}
}  // namespace

SocketChannel::SocketChannel(Descriptor socket, std::unique_ptr<Arena> arena, PeerMemory peer)
    : socket_(std::move(socket)), arena_(std::move(arena)), peer_(std::move(peer)) {}

void SocketChannel::send(Outgoing& frame) {
  const std::lock_guard lock(sending_);
  send_locked(frame, 0);
}

bool SocketChannel::send_at_once(Outgoing& frame) {
  const std::unique_lock lock(sending_, std::try_to_lock);
  return lock && send_locked(frame, MSG_DONTWAIT);
}

bool SocketChannel::send_locked(Outgoing& frame, int flags) {
  const uint64_t size = frame.data_bytes();
  if (size > kInlineLimitBytes) {
    frame.region = arena_->allocate(size);
    copy_data(frame, arena_->at(frame.region));
  } else {
    arena_->skip();
  }
  take_released(frame.released);
  pack(frame, message_);
  if (message_.size() > kMaxMessageBytes) return spill(frame, flags);
  if (send_bytes(socket_.get(), message_, flags)) return true;
  take_back(frame);
  return false;
}

// Sends a frame whose description alone is too long for the socket through the arena.
bool SocketChannel::spill(Outgoing& frame, int flags) {
  const std::vector<char> whole = message_;
  Outgoing outer;
  outer.kind = Kind::spill;
  outer.requests = 1;
  outer.tensors.push_back(
      {0, 0, 2, {static_cast<int64_t>(whole.size())}, whole.size(), {{whole.data(), whole.size()}}});
  try {
    if (send_locked(outer, flags)) return true;
  } catch (const ArenaFull&) {
    take_back(frame);
    throw;
  }
  take_back(frame);
  return false;
}

// What a frame that was not sent took.
void SocketChannel::take_back(const Outgoing& frame) {
  if (frame.region != kNoRegion) arena_->free(frame.region);
  put_back(frame.released);
}

void SocketChannel::take_released(std::vector<uint64_t>& into) {
  const std::lock_guard lock(releasing_);
  const size_t some = std::min(released_.size(), kMaxReleased);
  into.assign(released_.begin(), released_.begin() + static_cast<ptrdiff_t>(some));
  released_.erase(released_.begin(), released_.begin() + static_cast<ptrdiff_t>(some));
}

void SocketChannel::put_back(const std::vector<uint64_t>& released) {
  const std::lock_guard lock(releasing_);
  released_.insert(released_.end(), released.begin(), released.end());
}

void SocketChannel::finished(const Reply& reply) {
  if (reply.frame.region == kNoRegion) return;
  put_back({reply.frame.region});
}

void SocketChannel::release(bool taken, bool at_once) {
  if (taken) ++taken_;
  const std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock) return;  // whoever sends tells of regions, and a later call of the rest
  const uint32_t known = taken_;
  {
    const std::lock_guard releasing(releasing_);
    if (released_.empty() && known - reported_taken_ < (at_once ? 1 : kReportTaken)) return;
  }
  Outgoing frame;
  frame.kind = Kind::release;
  frame.number = known - reported_taken_;
  try {
    if (send_locked(frame, MSG_DONTWAIT)) reported_taken_ = known;
  } catch (const PeerGone&) {  // a worker that is about to end listens no more, and may still answer what it has
  }
}

void SocketChannel::receive(Reply& reply) {
  reply.message_.resize(kMaxMessageBytes);
  ssize_t length = 0;
  do length = recv(socket_.get(), reply.message_.data(), reply.message_.size(), MSG_TRUNC);
  while (length < 0 && errno == EINTR);
  if (length < 0) gone();
  if (length == 0) throw PeerGone("the connection was closed");
  if (static_cast<size_t>(length) > reply.message_.size()) throw FrameError("a message is too long");
  unpack({reply.message_.data(), static_cast<size_t>(length)}, reply.frame);
  accept(reply, false);
}

void SocketChannel::accept(Reply& reply, bool spilled) {
  for (const uint64_t offset : reply.frame.released) arena_->free(offset);
  if (reply.frame.region != kNoRegion) {
    reply.memory_ = &peer_;
    peer_.check(reply.frame.region, reply.frame.data_bytes);
  }
  if (reply.frame.kind != Kind::spill) return;
  if (spilled || reply.frame.tensors.size() != 1) {
    throw FrameError("a spilled frame holds one tensor, and no other spilled frame");
  }
  constexpr uint64_t kMaxSpilledBytes = 1 << 30;
  const Placed& tensor = reply.frame.tensors[0];
  if (tensor.size > kMaxSpilledBytes) throw FrameError("a spilled frame is too long");
  std::vector<char> whole(tensor.size);
  reply.read(tensor.offset, whole.data(), whole.size());
  finished(reply);
  reply.message_ = std::move(whole);
  unpack({reply.message_.data(), reply.message_.size()}, reply.frame);
  accept(reply, true);
}

void SocketChannel::shutdown() {
  is_shut_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void SocketChannel::say_goodbye() {
  Outgoing frame;
  frame.kind = Kind::goodbye;
  std::vector<char> message;
  pack(frame, message);
  ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown();
}

}  // namespace pytriton
