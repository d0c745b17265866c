// What comes on a connection: bytes, messages, and the calls that they are.
#include <algorithm>
#include <cerrno>

#include "grpc_call.h"
#include "h2_connection.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostInputBytes = 256 << 10, kLeastInputBytes = 4 << 10;
constexpr int64_t kLongInput_ns = 2 * kMillisecond_ns;
constexpr unsigned kMostTurns = 16;
constexpr size_t kMostArrivals = 64;         // requests that begin in one turn
constexpr size_t kSmallMessage = 128 << 10;  // not refused as the only one of its connection, whatever others hold
constexpr size_t kMessageCost = 1 << 10;     // of what is kept beside its bytes, as its call and its answer
constexpr size_t kFirstRoom = 4 << 20;       // of a larger one, before more of it has come
constexpr size_t kMostOther = 64 << 10;      // of a request that is no inference

}  // namespace

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

void H2Connection::dispatch(const Arrival& arrival) {
  GrpcStream& stream = *arrival.stream;
  if (stream.preparing || !stream.waiting.empty()) {
    stream.waiting.push_back(arrival.message);
  } else {
    begin(arrival.stream, arrival.message);
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

void H2Connection::resume(const StreamPointer& stream) {
  --stream->preparing;
  while (!stream->preparing && !stream->waiting.empty()) {
    const ReceivedPointer message = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    begin(stream, message);
  }
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

}  // namespace pytriton::http
