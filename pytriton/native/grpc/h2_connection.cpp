#include "h2_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "../edge/progress.h"
#include "../edge/router.h"
#include "grpc_call.h"
#include "h2_callbacks.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostInputBytes = 256 << 10, kLeastInputBytes = 4 << 10, kParts = 256;
constexpr int64_t kLongInput_ns = 2 * kMillisecond_ns;
constexpr unsigned kMostTurns = 16;
constexpr size_t kMostArrivals = 64;       // requests that begin in one turn
constexpr uint64_t kFewInFlight = 8;       // requests, whose answers are not left to the loop
constexpr size_t kLargeAnswer = 64 << 10;  // bytes, which are not left to it either
constexpr size_t kUnchargedUnsent = 64 << 10;
constexpr size_t kMostUnsent = 256 << 20;    // of a stream whose client does not read
constexpr size_t kSmallMessage = 128 << 10;  // not refused as the only one of its connection, whatever others hold
constexpr size_t kMessageCost = 1 << 10;     // of what is kept beside its bytes, as its call and its answer
constexpr size_t kFirstRoom = 4 << 20;       // of a larger one, before more of it has come
constexpr size_t kMostOther = 64 << 10;      // of a request that is no inference
constexpr size_t kUnchargedStreams = 64, kUnchargedHead = 4 << 10;  // of a connection; bytes of a stream
constexpr size_t kStreamCost = 1 << 10, kFieldCost = 64;            // bytes beside those of a head
constexpr size_t kMostCalls = 1024;                                 // in flight on a stream
constexpr int64_t kLinger_ns = 2 * kSecond_ns;
constexpr size_t kLingerBytes = 64 << 20;
constexpr int64_t kNotice_ns = kSecond_ns / 5;  // between the notice of a drain and the last stream
constexpr int64_t kMostDrain_s = 5;             // for which a drain waits for a client that reads and sends nothing

// The status that HTTP has for a call where the client is at fault; 0 for others.
int refusal_of(const GrpcStream& stream, int status) {
  if (stream.is_restricted) return 403;
  switch (status) {
    case grpc::kInvalidArgument:
      return 400;
    case grpc::kNotFound:
    case grpc::kUnimplemented:
      return 404;
    case grpc::kAlreadyExists:
      return 409;
    case grpc::kResourceExhausted:
      return 429;
    default:
      return 0;
  }
}

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
  if (is_leaving_) return discard();
  if (events & (EPOLLHUP | EPOLLERR)) is_broken_ = true;
  if (events & EPOLLOUT) mark_dirty();
  if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
  is_readable_ = true;
  if (!receive()) return remove();
  mark_dirty();
}

void H2Connection::read_on() {
  is_dirty_ = false;
  if (is_removed_ || is_leaving_) return;
  if (is_readable_ && !receive()) return remove();
  flush();
}

void H2Connection::mark_dirty() {
  if (is_removed_ || std::exchange(is_dirty_, true)) return;
  loop_.again(*this);
}

bool H2Connection::receive() {
  thread_local std::vector<char> input(kMostInputBytes);
  const int64_t began_at = now_ns();
  std::vector<Arrival> arrivals;
  Cancelled gone;
  bool is_well = true;
  int64_t next_deadline = 0;
  for (unsigned turn = 0; turn < kMostTurns && is_readable_ && arrivals.size() < kMostArrivals; ++turn) {
    // With TLS, what is received and what is sent share the session.
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (transport_.is_encrypted()) lock.lock();
    const ssize_t received = take_input(input.data());
    if (received < 0 && errno == EAGAIN) {
      is_readable_ = false;
      break;
    }
    if (received <= 0) {
      is_well = false;
      break;
    }
    if (static_cast<size_t>(received) < input_bytes_ && !transport_.is_encrypted() && !is_broken_) is_readable_ = false;
    active_at_ = loop_.coarse_now();
    if (!lock.owns_lock()) lock.lock();
    if (is_closed_ || nghttp2_session_mem_recv2(session_, reinterpret_cast<const uint8_t*>(input.data()),
                                                static_cast<size_t>(received)) < 0)
      is_well = false;
    std::move(arrivals_.begin(), arrivals_.end(), std::back_inserter(arrivals));
    arrivals_.clear();
    gone.insert(gone.end(), cancelled_.begin(), cancelled_.end());
    cancelled_.clear();
    if (!deadlines_.empty()) next_deadline = deadlines_.begin()->first;
    if (!is_well) {
      send();  // which says why
      break;
    }
  }
  cancel(gone);
  if (next_deadline) arm(next_deadline);
  for (const Arrival& each : arrivals) dispatch(each);
  // Between pieces of what takes long, as many small frames do, other connections have their turns.
  input_bytes_ = now_ns() - began_at > kLongInput_ns ? std::max(input_bytes_ / 4, kLeastInputBytes)
                                                     : std::min(input_bytes_ * 2, kMostInputBytes);
  if (is_readable_) mark_dirty();
  return is_well;
}

// Bytes for the session, first those that came before it.
ssize_t H2Connection::take_input(char* to) {
  if (received_.empty()) {
    const ssize_t received = transport_.receive(to, input_bytes_);
    if (received > 0) loop_.metrics().received.add(static_cast<uint64_t>(received));
    return received;
  }
  const size_t size = received_.copy(to, input_bytes_);
  received_.erase(0, size);
  return static_cast<ssize_t>(size);
}

void H2Connection::dispatch(const Arrival& arrival) {
  GrpcStream& stream = *arrival.stream;
  if (stream.preparing || !stream.waiting.empty()) {
    stream.waiting.push_back(arrival.message);
  } else {
    begin(arrival.stream, arrival.message);
  }
}

void H2Connection::resume(const StreamPointer& stream) {
  --stream->preparing;
  while (!stream->preparing && !stream->waiting.empty()) {
    const ReceivedPointer message = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    begin(stream, message);
  }
}

void H2Connection::begin(const StreamPointer& stream, const ReceivedPointer& message) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream->is_closed || stream->is_finished) return;
  }
  auto* const call = new GrpcCall(stream, message);
  const Reference<GrpcCall> reference(*call);
  route_grpc(*call);
}

void H2Connection::cancel(Cancelled& calls) {
  for (GrpcCall* const call : calls) {
    call->cancel();
    call->release();
  }
  calls.clear();
}

void H2Connection::collect(const GrpcStream& stream, Cancelled& to) {
  for (GrpcCall* const call : stream.calls) {
    call->retain();
    to.push_back(call);
  }
}

// Replies

void H2Connection::deliver(std::unique_ptr<Reply> reply) {
  if (loop_.is_current()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      apply(*reply);
    }
    return mark_dirty();
  }
  const bool is_large = reply->message && reply->message->left() > kLargeAnswer;
  // A reply behind others that the loop has not applied yet goes the same way, to keep their order.
  if (!reply->stream->on_their_way.load() && (is_large || loop_.metrics().in_flight.value() < kFewInFlight) &&
      mutex_.try_lock()) {
    Cancelled gone;
    {
      const std::lock_guard<std::mutex> lock(mutex_, std::adopt_lock);
      apply(*reply);
      send();
      gone.swap(cancelled_);
    }
    cancel(gone);
    if (loop_.is_draining()) loop_.post([self = shared_from_this()] { self->mark_dirty(); });
    return;
  }
  reply->stream->on_their_way.fetch_add(1);
  loop_.notify(*reply.release());
}

void H2Connection::apply_on_loop(Reply& reply) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    apply(reply);
    reply.stream->on_their_way.fetch_sub(1);
  }
  mark_dirty();
}

void H2Connection::apply(Reply& reply) {
  GrpcStream& stream = *reply.stream;
  if (reply.ends_call) --stream.open_calls;
  if (stream.is_closed || is_closed_) return;
  if (reply.ends_call && stream.unconsumed && stream.open_calls < kMostCalls)
    nghttp2_session_consume_stream(session_, stream.id, std::exchange(stream.unconsumed, 0));
  const bool is_held = reply.turn && !stream.turns.empty() && stream.turns.front() != reply.turn;
  if (is_held) {
    if (reply.message) reply.turn->held.push_back(std::move(reply.message));
    reply.turn->is_over = reply.ends_call;
  } else {
    if (reply.message) add_message(stream, std::move(reply.message));
    if (reply.turn && reply.ends_call) {
      stream.turns.pop_front();
      take_turns(stream);
    }
  }
  if (reply.finishes) return finish(stream, reply.status, std::move(reply.reason));
  if (!stream.is_of_stream() || stream.open_calls) return;
  if (stream.is_half_closed) return finish(stream, grpc::kOk, {});
  if (is_going_) finish(stream, grpc::kUnavailable, "the server is stopping");
}

// What waited for the responses of an earlier request.
void H2Connection::take_turns(GrpcStream& stream) {
  while (!stream.turns.empty()) {
    Turn& turn = *stream.turns.front();
    for (MessagePointer& each : turn.held) add_message(stream, std::move(each));
    turn.held.clear();
    if (!turn.is_over) return;
    stream.turns.pop_front();
  }
}

void H2Connection::add_message(GrpcStream& stream, MessagePointer&& message) {
  if (stream.is_finished) return;
  const size_t unread = stream.unsent;  // one response may be as long as it likes
  stream.unsent += message->left();
  stream.replies.push_back(std::move(message));
  if (stream.is_of_stream()) {
    if (!stream.unsent_charge.bytes()) stream.unsent_charge = Charge(share_);
    const bool is_too_much =
        unread > kMostUnsent || (stream.unsent > kUnchargedUnsent && stream.unsent > stream.unsent_charge.bytes() &&
                                 stream.unsent_charge.resize(2 * stream.unsent) != Refusal::none);
    if (is_too_much) {  // clients know it as RESOURCE_EXHAUSTED
      stream.is_finished = true;
      report(stream, grpc::kResourceExhausted);
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_ENHANCE_YOUR_CALM);
      return;
    }
  }
  submit(stream);
}

void H2Connection::finish(GrpcStream& stream, int status, std::string reason) {
  if (std::exchange(stream.is_finished, true)) return;
  stream.status = status;
  stream.reason = std::move(reason);
  report(stream, status);
  submit(stream);
}

void H2Connection::report(const GrpcStream& stream, int status) {
  const Route route = !stream.method                                  ? Route::none
                      : stream.method->method == Method::infer        ? Route::grpc_infer
                      : stream.method->method == Method::stream_infer ? Route::grpc_stream
                                                                      : Route::grpc_other;
  const uint64_t sent = static_cast<uint64_t>(stream.sent_bytes) + stream.unsent;
  const int64_t duration_ns = now_ns() - stream.began_at;
  loop_.metrics().count(route, status, duration_ns, sent);
  if (SharedCounters* const counters = loop_.edge().counters()) {
    if (const int refused = refusal_of(stream, status)) counters->refuse(refused);
  }
  if (AccessLog* const log = loop_.access_log())
    log->add(stream.request, name_of(route), static_cast<uint64_t>(stream.received_bytes), status, sent, duration_ns);
}

void H2Connection::submit(GrpcStream& stream) {
  if (stream.has_headers) {
    if (std::exchange(stream.is_deferred, false)) nghttp2_session_resume_data(session_, stream.id);
    return;
  }
  if (!stream.unsent && !stream.is_finished) return;
  stream.has_headers = true;
  submit_headers(session_, stream);
}

// Sends what there is, as long as the socket takes it.
bool H2Connection::send() {
  if (is_failed_ || is_closed_) return false;
  if (transport_.is_handshaking()) return true;
  while (true) {
    if (out_bytes_ <= kMostOut && nghttp2_session_want_write(session_) && nghttp2_session_send(session_) != 0) {
      is_failed_ = true;
      return false;
    }
    std::array<iovec, kParts> parts;
    size_t count = 0;
    for (Segment& each : out_) {
      if (count == parts.size()) break;
      if (!each.part.iov_base) each.part = {each.own.data(), each.own.size()};
      if (each.part.iov_len) parts[count++] = each.part;
    }
    if (!count) {
      out_.clear();
      break;
    }
    const ssize_t sent = transport_.send(parts.data(), count);
    if (sent < 0) {
      if (errno != EAGAIN) {
        is_failed_ = true;
        return false;
      }
      if (!std::exchange(is_blocked_, true)) loop_.watch_output(*this, true);
      return true;
    }
    out_bytes_ -= static_cast<size_t>(sent);
    auto rest = static_cast<size_t>(sent);
    while (!out_.empty()) {
      Segment& first = out_.front();
      const size_t taken = std::min(rest, first.part.iov_len);
      first.part.iov_base = static_cast<char*>(first.part.iov_base) + taken;
      first.part.iov_len -= taken;
      rest -= taken;
      if (first.part.iov_len) break;
      out_.pop_front();
      if (!rest) break;
    }
  }
  if (std::exchange(is_blocked_, false)) loop_.watch_output(*this, false);
  return true;
}

void H2Connection::flush() {
  Cancelled gone;
  bool is_well, is_over;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_well = send();
    gone.swap(cancelled_);
    is_over = out_.empty() && ((is_going_ && streams_.empty()) ||
                               (!nghttp2_session_want_read(session_) && !nghttp2_session_want_write(session_)));
  }
  cancel(gone);
  if (!is_well) return remove();
  if (is_over) leave();
}

// Requests

bool H2Connection::reserve(GrpcStream& stream, size_t more) const {
  Received& message = *stream.message;
  const size_t needed = message.size + more;
  if (needed <= message.buffer->capacity()) return true;
  // All that was announced, up to a bound: a client that sends nothing more shall not cost its announcement.
  const size_t capacity = std::max(needed, std::min(stream.message_size, std::max(message.size * 2, kFirstRoom)));
  const bool is_alone = streams_.size() == 1 && !stream.open_calls;
  if (is_alone && capacity <= kSmallMessage) {
    message.charge.force(capacity + kMessageCost);
  } else if (message.charge.resize(capacity + kMessageCost) != Refusal::none) {
    return false;
  }
  return message.buffer->reserve(capacity);
}

bool H2Connection::append_data(GrpcStream& stream, const char* data, size_t size) {
  stream.received_bytes += static_cast<int64_t>(size);
  while (size && !stream.is_finished) {
    if (stream.prefix_size < kPrefixBytes) {
      const size_t taken = std::min(size, kPrefixBytes - stream.prefix_size);
      std::copy_n(data, taken, stream.prefix.data() + stream.prefix_size);
      stream.prefix_size += taken;
      data += taken;
      size -= taken;
      if (stream.prefix_size < kPrefixBytes) return true;
      stream.message_size = 0;
      for (size_t byte = 1; byte < kPrefixBytes; ++byte)
        stream.message_size = stream.message_size << 8 | static_cast<uint8_t>(stream.prefix[byte]);
      const uint64_t most =
          stream.method->is_large() ? loop_.edge().config().limits.max_body_bytes : uint64_t{kMostOther};
      if (stream.message_size > most) {
        finish(stream, grpc::kResourceExhausted,
               "the message has " + std::to_string(stream.message_size) + " bytes, of at most " + std::to_string(most));
        return true;
      }
      if (static_cast<uint8_t>(stream.prefix[0]) > 1) return false;
      stream.message = std::make_shared<Received>();
      stream.message->is_compressed = stream.prefix[0] == 1;
      stream.message->charge = Charge(share_);
    }
    Received& message = *stream.message;
    const size_t taken = std::min(size, stream.message_size - message.size);
    if (!reserve(stream, std::max<size_t>(taken, 1))) {
      stream.message.reset();
      finish(stream, grpc::kUnavailable, "there is no memory for the request; try again later");
      return true;
    }
    if (taken) std::copy_n(data, taken, message.buffer->data() + message.size);
    message.size += taken;
    data += taken;
    size -= taken;
    if (message.size == stream.message_size && !complete_message(stream)) return false;
  }
  return true;
}

bool H2Connection::complete_message(GrpcStream& stream) {
  stream.prefix_size = 0;
  if (++stream.messages > 1 && !stream.is_of_stream()) return false;
  ++stream.open_calls;
  arrivals_.push_back({stream.shared_from_this(), std::move(stream.message)});
  return true;
}

// Gives the client a window for what has been read, unless it has too many requests in flight.
void H2Connection::consume(GrpcStream& stream, size_t size) {
  nghttp2_session_consume_connection(session_, size);
  if (stream.is_of_stream() && stream.open_calls >= kMostCalls) {
    stream.unconsumed += size;
  } else {
    nghttp2_session_consume_stream(session_, stream.id, size);
  }
}

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

// The end

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

void H2Connection::check_deadline(int64_t now) {
  const Config& config = loop_.edge().config();
  if (is_leaving_) {
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

// First a notice, as requests may be under way; the next time, what comes after it is refused.
void H2Connection::drain() {
  if (is_leaving_ || is_removed_) return;
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

void H2Connection::give_way() {
  loop_.metrics().given_way.add();
  remove();
}

void H2Connection::leave() {
  is_leaving_ = true;
  ++loop_.leaving;
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

// Reads what the client still sends: a socket that is closed with unread bytes takes the answers away from the client.
void H2Connection::discard() {
  char ignored[16 << 10];
  while (left_over_ < kLingerBytes) {
    const ssize_t received = transport_.discard(ignored, sizeof ignored);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0) break;
    left_over_ += static_cast<size_t>(received);
  }
  remove();
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

std::shared_ptr<Served> make_grpc_connection(Loop& loop, Transport transport, std::string peer, std::string received) {
  return std::make_shared<H2Connection>(loop, std::move(transport), std::move(peer), std::move(received));
}

}  // namespace pytriton::http
