// What a client may cost a connection: deadlines, time-outs, heads, pings, settings and streams that end early.
#include <algorithm>

#include "h2_connection.h"

namespace pytriton::http {

namespace {

constexpr size_t kUnchargedHead = 4 << 10;                // bytes of a stream
constexpr size_t kStreamCost = 1 << 10, kFieldCost = 64;  // bytes beside those of a head
constexpr int64_t kLinger_ns = 2 * kSecond_ns;
constexpr int64_t kMostDrain_s = 5;  // for which a drain waits for a client that reads and sends nothing

}  // namespace

void H2Connection::arm(int64_t deadline) {
  // Not for hours: the loop keeps a timer, and the memory of its connection, when the client has gone.
  const int64_t at = std::min(deadline, loop_.coarse_now() + kSecond_ns);
  if (armed_ && armed_ <= at) return;
  armed_ = at;
  loop_.after(std::max<int64_t>(at - loop_.coarse_now(), 0), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->is_removed_) return;
    self->armed_ = 0;
    self->expire();
  });
}

void H2Connection::expire() {
  Cancelled gone;
  int64_t next = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now = now_ns();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      GrpcStream& stream = *deadlines_.begin()->second;
      deadlines_.erase(deadlines_.begin());
      stream.has_deadline = false;
      collect(stream, gone);
      finish(stream, grpc::kDeadlineExceeded, "Deadline Exceeded");
    }
    if (!deadlines_.empty()) next = deadlines_.begin()->first;
  }
  cancel(gone);
  if (next) arm(next);
  mark_dirty();
}

void H2Connection::check_deadline(int64_t now) {
  const Config& config = loop_.edge().config();
  if (is_lingering_) {
    if (now - left_at_ > kLinger_ns) remove();
    return;
  }
  if (!has_preface_ && now - began_at_ > config.head_timeout_s * kSecond_ns) {
    loop_.metrics().timed_out.add();
    return remove();
  }
  bool is_stalled = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, stream] : streams_) {
      if (!has_stalled(*stream, now)) continue;
      loop_.metrics().timed_out.add();
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    if (!is_blocked_) {
      is_watched_ = false;
    } else {
      if (!std::exchange(is_watched_, true)) progress_.begin(now, transport_.taken());
      is_stalled = progress_.is_stalled(now, transport_.taken(), config.body_timeout_s, config.least_bytes_per_second);
    }
    const GrpcOptions& options = config.grpc;
    if (streams_.empty() && now - active_at_ > config.idle_timeout_s * kSecond_ns) {
      nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                            NGHTTP2_NO_ERROR, nullptr, 0);
      is_going_ = true;
    } else if (!is_ping_answered_) {
      is_stalled |= now - pinged_at_ > options.keepalive_timeout_ms * kMillisecond_ns;
    } else if (now - std::max(active_at_, pinged_at_) > options.keepalive_time_ms * kMillisecond_ns &&
               (!streams_.empty() || options.permits_pings_without_calls)) {
      pinged_at_ = now;
      is_ping_answered_ = false;
      nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
    }
  }
  if (is_stalled) {
    loop_.metrics().timed_out.add();
    transport_.reset();
    return remove();
  }
  mark_dirty();
}

bool H2Connection::has_stalled(GrpcStream& stream, int64_t now) const {
  const Config& config = loop_.edge().config();
  const bool is_receiving = !stream.is_finished && !stream.is_half_closed && !stream.unconsumed &&
                            (stream.prefix_size || !stream.has_head || (!stream.is_of_stream() && !stream.messages));
  const bool is_sending = stream.unsent > 0;
  if (!is_receiving && !is_sending) {
    stream.is_watched = false;
    return false;
  }
  const int64_t bytes = stream.received_bytes + stream.sent_bytes;
  if (!std::exchange(stream.is_watched, true)) stream.progress.begin(now, bytes);
  const int64_t timeout_s = loop_.is_draining() ? std::min(config.body_timeout_s, kMostDrain_s) : config.body_timeout_s;
  return stream.progress.is_stalled(now, bytes, timeout_s, config.least_bytes_per_second);
}

// A byte of a head that refers to the table may stand for kilobytes.
bool H2Connection::admit_head(GrpcStream& stream) const {
  const size_t cost = kStreamCost + stream.head_bytes + kFieldCost * stream.metadata.size();
  if (streams_.size() <= kUnchargedStreams && cost <= kUnchargedHead) return true;
  stream.head_charge = Charge(share_);
  return stream.head_charge.resize(cost) == Refusal::none;
}

// New windows of all streams, which take as long as there are streams.
void H2Connection::on_settings() {
  if (!settings_.take(loop_.coarse_now())) nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

// Requests whose stream has ended before them, whoever has reset it: they take their time nevertheless.
void H2Connection::on_abandoned() {
  if (!abandoned_.take(loop_.coarse_now())) nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

// Of pings that come sooner than the options allow, gRPC bears some.
void H2Connection::on_ping() {
  const GrpcOptions& options = loop_.edge().config().grpc;
  constexpr int64_t kWithoutCalls_ns = 7200 * kSecond_ns;
  const int64_t interval = streams_.empty() && !options.permits_pings_without_calls
                               ? kWithoutCalls_ns
                               : options.min_ping_interval_ms * kMillisecond_ns;
  const int64_t now = now_ns();
  if (last_ping_at_ && now - last_ping_at_ < interval && ++ping_strikes_ > options.max_ping_strikes &&
      options.max_ping_strikes > 0) {
    if (std::exchange(is_warned_, true)) {
      nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
      return;
    }
    constexpr std::string_view kReason = "too_many_pings";
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                          NGHTTP2_ENHANCE_YOUR_CALM, reinterpret_cast<const uint8_t*>(kReason.data()), kReason.size());
    is_going_ = true;
  }
  last_ping_at_ = now;
}

}  // namespace pytriton::http
