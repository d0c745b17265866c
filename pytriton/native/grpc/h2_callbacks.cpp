#include "h2_callbacks.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <new>

#include "grpc_call.h"
#include "h2_connection.h"

namespace pytriton::http {

namespace {

constexpr uint32_t kMostStreams = 1000, kStreamWindow = 4 << 20, kFrameBytes = 1 << 20;
constexpr int32_t kConnectionWindow = 256 << 20;
constexpr size_t kMostHeadBytes = 64 << 10, kMostFields = 256, kMostReason = 4 << 10;
constexpr uint64_t kResetBurst = 1000, kResetsPerSecond = 200;  // a gateway of chats has many

std::string_view view(const uint8_t* text, size_t size) { return {reinterpret_cast<const char*>(text), size}; }

std::string percent_encoded(std::string_view text) {
  std::string to;
  for (const char each : text.substr(0, kMostReason)) {
    if (each < ' ' || each > '~' || each == '%') {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned char>(each));
      to += escaped;
    } else {
      to += each;
    }
  }
  return to;
}

// The value of grpc-timeout; -1 if it is none.
int64_t timeout_ns(std::string_view text) {
  constexpr size_t kMostDigits = 8;
  if (text.size() < 2 || text.size() > kMostDigits + 1) return -1;
  int64_t value = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (digit < '0' || digit > '9') return -1;
    value = value * 10 + (digit - '0');
  }
  switch (text.back()) {
    case 'H':
      return std::min<int64_t>(value, 1'000'000) * 3600 * kSecond_ns;  // a century: its nanoseconds fit
    case 'M':
      return value * 60 * kSecond_ns;
    case 'S':
      return value * kSecond_ns;
    case 'm':
      return value * kMillisecond_ns;
    case 'u':
      return value * 1000;
    case 'n':
      return value;
    default:
      return -1;
  }
}

GrpcStream* stream_of(nghttp2_session* session, int32_t id) {
  return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(session, id));
}

}  // namespace

// Called with the connection's lock.
struct H2Callbacks {
  static int on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    auto& connection = *static_cast<H2Connection*>(user);
    auto stream = std::make_shared<GrpcStream>(connection.shared_from_this(), frame->hd.stream_id);
    stream->began_at = now_ns();
    nghttp2_session_set_stream_user_data(session, stream->id, stream.get());
    connection.streams_.emplace(stream->id, std::move(stream));
    return 0;
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                       const uint8_t* value, size_t value_size, uint8_t /*flags*/, void* /*user*/) {
    GrpcStream* const stream = stream_of(session, frame->hd.stream_id);
    if (!stream || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    const std::string_view key = view(name, name_size), text = view(value, value_size);
    stream->head_bytes += name_size + value_size;
    if (stream->head_bytes > kMostHeadBytes || stream->metadata.size() >= kMostFields)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (key == ":path") {
      stream->path = text;
      stream->method = find_method(text);
    } else if (key == ":method") {
      stream->has_bad_head |= text != "POST";
    } else if (key == "content-type") {
      stream->is_grpc = text == "application/grpc" || text.substr(0, 17) == "application/grpc+" ||
                        text.substr(0, 17) == "application/grpc;";
    } else if (key == "grpc-timeout") {
      stream->timeout_ns = timeout_ns(text);
      stream->has_bad_head |= stream->timeout_ns < 0;
    } else if (key == "grpc-encoding") {
      stream->compression = text == "identity"                    ? Compression::none
                            : text == "gzip" || text == "deflate" ? Compression::known
                                                                  : Compression::unknown;
    } else if (key == "grpc-accept-encoding") {
      stream->accepted.add(text);
    } else if (key.front() != ':' && key != "te") {
      stream->metadata.emplace_back(key, text);
    }
    return 0;
  }

  static void on_head(H2Connection& connection, GrpcStream& stream) {
    stream.has_head = true;
    Request& request = stream.request;
    request.method = "POST";
    request.target = request.path = stream.path;
    request.peer = connection.peer_;
    request.is_encrypted = connection.transport_.is_encrypted();
    for (const auto& [name, value] : stream.metadata) request.headers.push_back({name, value});
    if (stream.has_bad_head || !stream.is_grpc) {
      nghttp2_submit_rst_stream(connection.session_, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_PROTOCOL_ERROR);
      stream.is_finished = true;
      return;
    }
    if (!connection.admit_head(stream)) {
      request.headers.clear();
      stream.metadata.clear();
      return connection.finish(stream, grpc::kUnavailable, "there is no memory for the request; try again later");
    }
    if (!stream.method) return connection.finish(stream, grpc::kUnimplemented, "there is no such method");
    if (const Restriction* const rule =
            connection.loop_.edge().grpc_access().refusal(request, group_of(stream.method->action))) {
      stream.is_restricted = true;
      return connection.finish(stream, grpc::kUnavailable,
                               "This protocol is restricted, expecting header '" + rule->header + "'");
    }
    if (stream.method->action == Action::infer)
      stream.coding = stream.accepted.best(connection.loop_.edge().config().grpc.response_compression);
    if (stream.timeout_ns < 0) return;
    stream.deadline = connection.deadlines_.emplace(stream.began_at + stream.timeout_ns, &stream);
    stream.has_deadline = true;
  }

  static int on_data(nghttp2_session* session, uint8_t /*flags*/, int32_t id, const uint8_t* data, size_t size,
                     void* user) {
    auto& connection = *static_cast<H2Connection*>(user);
    GrpcStream* const stream = stream_of(session, id);
    if (!stream || !stream->method) {
      nghttp2_session_consume(session, id, size);
      return 0;
    }
    if (!connection.append_data(*stream, reinterpret_cast<const char*>(data), size)) {
      stream->is_finished = true;
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_PROTOCOL_ERROR);
    }
    connection.consume(*stream, size);
    return 0;
  }

  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    auto& connection = *static_cast<H2Connection*>(user);
    connection.has_preface_ = true;
    if (frame->hd.type == NGHTTP2_PING) {
      if (frame->hd.flags & NGHTTP2_FLAG_ACK) {
        connection.is_ping_answered_ = true;
      } else {
        connection.on_ping();
      }
    }
    if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK)) connection.on_settings();
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    GrpcStream* const stream = stream_of(session, frame->hd.stream_id);
    if (!stream) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) on_head(connection, *stream);
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    stream->is_half_closed = true;
    if (stream->prefix_size) {
      connection.finish(*stream, grpc::kInternal, "the request ends within a message");
    } else if (!stream->is_of_stream() && !stream->messages) {
      connection.finish(*stream, grpc::kInternal, "the request has no message");
    } else if (stream->is_of_stream() && !stream->open_calls) {
      connection.finish(*stream, grpc::kOk, {});
    }
    return 0;
  }

  static int on_close(nghttp2_session* /*session*/, int32_t id, uint32_t /*error*/, void* user) {
    auto& connection = *static_cast<H2Connection*>(user);
    const auto found = connection.streams_.find(id);
    if (found == connection.streams_.end()) return 0;
    GrpcStream& stream = *found->second;
    stream.is_closed = true;
    if (std::exchange(stream.has_deadline, false)) connection.deadlines_.erase(stream.deadline);
    H2Connection::collect(stream, connection.cancelled_);
    if (stream.open_calls) connection.on_abandoned();
    if (!stream.is_finished) connection.report(stream, grpc::kCancelled);
    stream.replies.clear();
    stream.turns.clear();
    stream.unsent = 0;
    stream.unsent_charge.drop();
    stream.message.reset();
    connection.streams_.erase(found);
    return 0;
  }

  static nghttp2_ssize on_send(nghttp2_session* /*session*/, const uint8_t* data, size_t size, int /*flags*/,
                               void* user) {
    auto& connection = *static_cast<H2Connection*>(user);
    if (connection.out_bytes_ > kMostOut) return NGHTTP2_ERR_WOULDBLOCK;
    text_of(connection).append(reinterpret_cast<const char*>(data), size);
    connection.out_bytes_ += size;
    return static_cast<nghttp2_ssize>(size);
  }

  static int on_send_data(nghttp2_session* session, nghttp2_frame* frame, const uint8_t* head, size_t size,
                          nghttp2_data_source* /*source*/, void* user) {
    constexpr size_t kHead = 9;
    auto& connection = *static_cast<H2Connection*>(user);
    if (connection.out_bytes_ > kMostOut) return NGHTTP2_ERR_WOULDBLOCK;
    GrpcStream& stream = *stream_of(session, frame->hd.stream_id);
    text_of(connection).append(reinterpret_cast<const char*>(head), kHead);
    connection.out_bytes_ += kHead + size;
    stream.unsent -= size;
    stream.sent_bytes += static_cast<int64_t>(size);
    connection.ping_strikes_ = 0;
    connection.last_ping_at_ = 0;
    while (size) {
      const MessagePointer& message = stream.replies.front();
      iovec part{};
      size -= message->take(size, text_of(connection), part);
      if (part.iov_base) {
        H2Connection::Segment& segment = connection.out_.emplace_back();
        segment.part = part;
        segment.owner = message;
      }
      if (!message->left()) stream.replies.pop_front();
    }
    if (!stream.unsent) stream.unsent_charge.drop();
    return 0;
  }

  // After the last frame of an answer, the client need not send on.
  static int on_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS) {
      auto& connection = *static_cast<H2Connection*>(user);
      connection.ping_strikes_ = 0;
      connection.last_ping_at_ = 0;
    }
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    const GrpcStream* const stream = stream_of(session, frame->hd.stream_id);
    if (stream && !stream->is_half_closed)
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
  }

  static nghttp2_ssize on_read(nghttp2_session* session, int32_t id, uint8_t* /*buffer*/, size_t most, uint32_t* flags,
                               nghttp2_data_source* /*source*/, void* /*user*/) {
    GrpcStream* const stream = stream_of(session, id);
    if (!stream) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const size_t size = std::min(most, stream->unsent);
    if (!size && !stream->is_finished) {
      stream->is_deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    if (stream->is_finished && size == stream->unsent) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      submit_trailers(session, *stream);
    }
    return static_cast<nghttp2_ssize>(size);
  }

  static nghttp2_ssize most_of_frame(nghttp2_session* /*session*/, uint8_t /*type*/, int32_t /*id*/,
                                     int32_t session_window, int32_t stream_window, uint32_t most_of_frame,
                                     void* /*user*/) {
    const auto most = std::min<int64_t>({session_window, stream_window, most_of_frame, kFrameBytes});
    return static_cast<nghttp2_ssize>(std::max<int64_t>(1, most));
  }

  static void submit_trailers(nghttp2_session* session, GrpcStream& stream) {
    if (std::exchange(stream.has_trailers, true)) return;
    const std::string status = std::to_string(stream.status), reason = percent_encoded(stream.reason);
    const nghttp2_nv fields[] = {field("grpc-status", status), field("grpc-message", reason)};
    nghttp2_submit_trailer(session, stream.id, fields, reason.empty() ? 1 : 2);
  }

 private:
  // Where bytes are to be appended to: what was given to the transport does not change.
  static std::string& text_of(H2Connection& connection) {
    auto& out = connection.out_;
    if (out.empty() || out.back().owner || out.back().part.iov_base) out.emplace_back();
    return out.back().own;
  }
};

nghttp2_session* make_session(H2Connection& connection) {
  struct Shared {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* option = nullptr;
  };
  static const Shared shared = [] {
    Shared made;
    if (nghttp2_session_callbacks_new(&made.callbacks) || nghttp2_option_new(&made.option)) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(made.callbacks, H2Callbacks::on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(made.callbacks, H2Callbacks::on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made.callbacks, H2Callbacks::on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(made.callbacks, H2Callbacks::on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(made.callbacks, H2Callbacks::on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(made.callbacks, H2Callbacks::on_close);
    nghttp2_session_callbacks_set_send_callback2(made.callbacks, H2Callbacks::on_send);
    nghttp2_session_callbacks_set_send_data_callback(made.callbacks, H2Callbacks::on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback2(made.callbacks, H2Callbacks::most_of_frame);
    nghttp2_option_set_no_auto_window_update(made.option, 1);
    nghttp2_option_set_stream_reset_rate_limit(made.option, kResetBurst, kResetsPerSecond);
    return made;
  }();
  nghttp2_session* session = nullptr;
  if (nghttp2_session_server_new2(&session, shared.callbacks, &connection, shared.option)) throw std::bad_alloc();
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostStreams},
                                             {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
                                             {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kFrameBytes},
                                             {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMostHeadBytes}};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
  return session;
}

void submit_headers(nghttp2_session* session, GrpcStream& stream) {
  const std::string status = std::to_string(stream.status), reason = percent_encoded(stream.reason);
  std::vector<nghttp2_nv> fields = {field(":status", "200"), field("content-type", "application/grpc"),
                                    field("grpc-accept-encoding", "identity, deflate, gzip")};
  if (!stream.unsent) {  // the head is all
    stream.has_trailers = true;
    fields.push_back(field("grpc-status", status));
    if (!reason.empty()) fields.push_back(field("grpc-message", reason));
    nghttp2_submit_response2(session, stream.id, fields.data(), fields.size(), nullptr);
    return;
  }
  if (stream.coding != Coding::identity)
    fields.push_back(field("grpc-encoding", stream.coding == Coding::gzip ? "gzip" : "deflate"));
  nghttp2_data_provider2 provider{};
  provider.read_callback = H2Callbacks::on_read;
  nghttp2_submit_response2(session, stream.id, fields.data(), fields.size(), &provider);
}

}  // namespace pytriton::http
