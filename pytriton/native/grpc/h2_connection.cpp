#include "h2_connection.h"

#include <sys/epoll.h>

#include <cerrno>

#include "../edge/router.h"
#include "h2_callbacks.h"

namespace pytriton::http {

namespace {

constexpr int64_t kNotice_ns = kSecond_ns / 5;  // between the notice of a drain and the last stream

}  // namespace

H2Connection::H2Connection(Loop& loop, Transport transport, std::string peer, std::string received)
    : loop_(loop),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      share_(loop.edge().account().share_of(peer_)),
      received_(std::move(received)),
      began_at_(now_ns()),
      active_at_(began_at_) {
  session_ = make_session(*this);
}

H2Connection::~H2Connection() { nghttp2_session_del(session_); }

void H2Connection::ready(uint32_t events) {
  if (is_removed_) return;
  if (is_lingering_) return discard();
  if (events & (EPOLLHUP | EPOLLERR)) is_broken_ = true;
  if (events & EPOLLOUT) mark_dirty();
  if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
  is_readable_ = true;
  if (!receive()) return remove();
  mark_dirty();
}

void H2Connection::continue_reading() {
  is_dirty_ = false;
  if (is_removed_ || is_lingering_) return;
  if (is_readable_ && !receive()) return remove();
  flush();
}

void H2Connection::mark_dirty() {
  if (is_removed_ || std::exchange(is_dirty_, true)) return;
  loop_.read_later(*this);
}

// First a notice, as requests may be under way; the next time, what comes after it is refused.
void H2Connection::drain() {
  if (is_lingering_ || is_removed_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now = now_ns();
    if (!drained_at_) {
      drained_at_ = now;
      nghttp2_submit_shutdown_notice(session_);
    } else if (!is_going_ && now - drained_at_ >= kNotice_ns) {
      is_going_ = true;
      nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                            NGHTTP2_NO_ERROR, nullptr, 0);
      for (const auto& [id, stream] : streams_)
        if (stream->is_of_stream() && !stream->open_calls)
          finish(*stream, grpc::kUnavailable, "the server is stopping");
    }
  }
  mark_dirty();
}

bool H2Connection::is_idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return streams_.empty();
}

void H2Connection::evict() {
  loop_.metrics().given_way.add();
  remove();
}

void H2Connection::linger() {
  is_lingering_ = true;
  ++loop_.lingering;
  left_at_ = loop_.coarse_now();
  Cancelled gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    transport_.shut_down();
    for (const auto& [id, stream] : streams_) collect(*stream, gone);
  }
  cancel(gone);
  discard();
}

void H2Connection::discard() {
  if (transport_.discard()) remove();
}

void H2Connection::remove() {
  if (std::exchange(is_removed_, true)) return;
  loop_.remove(*this);
}

void H2Connection::close() {
  is_removed_ = true;
  loop_.edge().forget_peer(peer_);
  Cancelled gone;
  std::unordered_map<int32_t, StreamPointer> streams;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    gone.swap(cancelled_);
    streams.swap(streams_);
    for (const auto& [id, stream] : streams) {
      stream->is_closed = true;
      stream->replies.clear();
      collect(*stream, gone);
      if (!stream->is_finished) report(*stream, grpc::kCancelled);
    }
    deadlines_.clear();
    out_.clear();
  }
  cancel(gone);
}

std::shared_ptr<ClientConnection> make_grpc_connection(Loop& loop, Transport transport, std::string peer,
                                                       std::string received) {
  return std::make_shared<H2Connection>(loop, std::move(transport), std::move(peer), std::move(received));
}

}  // namespace pytriton::http
