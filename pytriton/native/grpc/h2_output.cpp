// What is sent on a connection: replies in their order, and bytes as far as the socket takes them.
#include <array>
#include <cerrno>

#include "grpc_call.h"
#include "h2_callbacks.h"
#include "h2_connection.h"

namespace pytriton::http {

namespace {

constexpr size_t kParts = 256;
constexpr uint64_t kFewInFlight = 8;       // requests, whose answers are not left to the loop
constexpr size_t kLargeAnswer = 64 << 10;  // bytes, which are not left to it either
constexpr size_t kUnchargedUnsent = 64 << 10;

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
    const size_t uncharged = streams_.size() <= kUnchargedStreams ? kUnchargedUnsent : 0;
    const bool is_too_much =
        unread > kMostUnsent || (stream.unsent > uncharged && stream.unsent > stream.unsent_charge.bytes() &&
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
  if (is_over) linger();
}

}  // namespace pytriton::http
