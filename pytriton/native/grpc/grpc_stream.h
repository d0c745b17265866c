// An RPC: a stream of HTTP/2, with what has come on it and what is to be sent.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../edge/buffer.h"
#include "../edge/exchange.h"
#include "../edge/http_exchange.h"
#include "../edge/progress.h"
#include "grpc_message.h"
#include "grpc_methods.h"
#include "message_coding.h"

namespace pytriton::http {

class GrpcCall;
class H2Connection;
struct GrpcStream;
using StreamPointer = std::shared_ptr<GrpcStream>;

enum class Compression { none, known, unknown };  // of a client's messages

// Status codes of gRPC.
namespace grpc {
constexpr int kOk = 0, kCancelled = 1, kUnknown = 2, kInvalidArgument = 3, kDeadlineExceeded = 4, kNotFound = 5,
              kAlreadyExists = 6, kResourceExhausted = 8, kUnimplemented = 12, kInternal = 13, kUnavailable = 14;
int status_of(Code code);
}  // namespace grpc

// A message of a client.
struct Received {
  std::shared_ptr<Buffer> buffer = std::make_shared<Buffer>();
  size_t size = 0;
  bool is_compressed = false;
  Charge charge;
};
using ReceivedPointer = std::shared_ptr<Received>;

// The place of a request on a stream whose responses have the order of the requests.
struct Turn {
  std::vector<MessagePointer> held;  // until it is the first one
  bool is_over = false;
};

struct GrpcStream : std::enable_shared_from_this<GrpcStream> {
  GrpcStream(std::shared_ptr<H2Connection> connection, int32_t id) : connection(std::move(connection)), id(id) {}

  const std::shared_ptr<H2Connection> connection;
  const int32_t id;

  // Of the head; nobody changes it after that.
  const MethodEntry* method = nullptr;
  bool is_grpc = false, has_bad_head = false, has_head = false;
  Compression compression = Compression::none;
  AcceptedCodings accepted;
  Coding coding = Coding::identity;  // of the messages that are sent
  std::string path;
  std::deque<std::pair<std::string, std::string>> metadata;
  size_t head_bytes = 0;
  Charge head_charge;
  int64_t timeout_ns = -1;
  Request request;  // as access rules and logs see it
  bool is_restricted = false;
  int64_t began_at = 0;

  // The loop's
  std::deque<ReceivedPointer> waiting;  // messages behind one that is being prepared
  int preparing = 0;                    // holds on the messages that wait

  // The rest is the connection's lock's.
  std::array<char, kPrefixBytes> prefix{};
  size_t prefix_size = 0, message_size = 0;
  ReceivedPointer message;
  unsigned messages = 0;  // that came
  bool is_half_closed = false;
  int64_t received_bytes = 0, sent_bytes = 0;
  size_t unconsumed = 0;  // bytes for which the client gets no window yet

  std::deque<MessagePointer> replies;
  size_t unsent = 0;
  Charge unsent_charge;
  bool has_headers = false, is_finished = false, has_trailers = false, is_closed = false, is_deferred = false;
  int status = 0;
  std::string reason;
  std::vector<GrpcCall*> calls;  // in flight
  size_t open_calls = 0;         // whose last reply has not been applied
  std::deque<std::shared_ptr<Turn>> turns;
  std::multimap<int64_t, GrpcStream*>::iterator deadline;
  bool has_deadline = false;
  std::atomic<int> on_their_way{0};  // replies that the loop is to apply

  // For the time-outs
  Progress progress;
  bool is_watched = false;

  // Whether there may be any number of messages.
  bool is_of_stream() const {
    return method && (method->method == Method::stream_infer || method->method == Method::reflection);
  }
};

// What a thread has for a stream: a message, the end of a call, or that of the stream.
struct Reply final : Notifiable {
  StreamPointer stream;
  MessagePointer message;      // may be none
  std::shared_ptr<Turn> turn;  // of the request, if its responses keep the order
  bool ends_call = false, finishes = false;
  int status = 0;
  std::string reason;

  void handle() override;  // applies and deletes this
};

}  // namespace pytriton::http
