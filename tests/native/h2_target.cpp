// A connection of HTTP/2 to the gRPC endpoint, beside a server that answers with its inputs: whatever comes, what is
// sent are whole frames, and nothing is left when the client has gone. The first byte says what the rest is: all that
// comes; frames behind the preface; a block of fields, for HPACK, with a message; or short orders, which become frames.
// It also says whether it comes in two parts.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "echo_server.h"
#include "edge/edge.h"
#include "edge/loop.h"
#include "edge/router.h"
#include "edge/transport.h"
#include "grpc/proto.h"
#include "target.h"

namespace {

using pytriton::Descriptor;
using namespace pytriton::http;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHead = 9;
enum FrameKind : unsigned {
  kData,
  kHeaders,
  kPriority,
  kReset,
  kSettings,
  kPush,
  kPing,
  kGoAway,
  kWindow,
  kContinuation
};
constexpr unsigned kEnds = 1, kEndsHead = 4;

std::string frame(unsigned kind, unsigned flags, uint32_t stream, std::string_view content) {
  std::string text;
  for (const int shift : {16, 8, 0}) text += static_cast<char>(content.size() >> shift);
  text += static_cast<char>(kind);
  text += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(stream >> shift);
  return text.append(content);
}

std::string field(std::string_view name, std::string_view value) {
  std::string text(1, '\0');
  for (const std::string_view each : {name, value}) {
    text += static_cast<char>(each.size());
    text += each;
  }
  return text;
}

std::string head(std::string_view path, std::string_view encoding) {
  return field(":method", "POST") + field(":scheme", "http") + field(":path", path) + field(":authority", "a") +
         field("te", "trailers") + field("content-type", "application/grpc") + field("grpc-encoding", encoding);
}

std::string prefixed(std::string_view message, bool is_compressed = false) {
  std::string text(1, static_cast<char>(is_compressed));
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(message.size() >> shift);
  return text.append(message);
}

std::string infer_request(std::string_view model) {
  std::string text, input;
  ProtoWriter writer(text), of(input);
  writer.bytes(1, model);
  writer.bytes(3, "i");
  of.bytes(1, "x");
  of.bytes(2, "FP32");
  of.bytes(3, "\1\2");
  writer.bytes(5, input);
  writer.bytes(7, "12345678");
  return text;
}

// Orders of three bytes and more: which frame, for which stream, with how many bytes of what follows.
std::string frames_of(std::string_view orders) {
  static const std::array<std::string, 8> heads = {
      head("/inference.GRPCInferenceService/ModelInfer", "identity"),
      head("/inference.GRPCInferenceService/ModelStreamInfer", "identity"),
      head("/inference.GRPCInferenceService/ModelInfer", "gzip"),
      head("/inference.GRPCInferenceService/ModelStreamInfer", "deflate"),
      head("/inference.GRPCInferenceService/ServerMetadata", "identity"),
      head("/grpc.health.v1.Health/Check", "identity"),
      head("/inference.GRPCInferenceService/ModelStreamInfer", "identity") + field("grpc-timeout", "1n"),
      head("/nothing", "identity")};
  static const std::array<std::string, 4> messages = {prefixed(infer_request("echo")),
                                                      prefixed(infer_request("stream")),
                                                      prefixed(infer_request("fails")), prefixed("")};
  std::string text;
  while (orders.size() >= 3) {
    const auto what = static_cast<uint8_t>(orders[0]), where = static_cast<uint8_t>(orders[1]);
    const std::string_view content = orders.substr(3, static_cast<uint8_t>(orders[2]));
    orders.remove_prefix(3 + content.size());
    const uint32_t stream = where & 63U;
    const unsigned ends = where & 64U ? kEnds : 0;
    switch (what & 7U) {
      case 0:
        text += frame(kHeaders, kEndsHead | ends, stream, heads[what >> 3U & 7U] + std::string(content));
        break;
      case 1:
        text += frame(kData, ends, stream, messages[what >> 3U & 3U]);
        break;
      case 2:
        text += frame(kData, ends, stream, content);
        break;
      case 3:
        text += frame(kData, ends, stream, prefixed(content, what >> 3U & 1U));
        break;
      case 4:
        text += frame(kReset, 0, stream, std::string_view("\0\0\0\10", 4));
        break;
      case 5:
        text += frame(kWindow, 0, stream, content);
        break;
      case 6:
        text += frame(kSettings, 0, 0, content);
        break;
      default:
        text += frame(what >> 3U, where >> 3U, stream, content);
    }
  }
  return text;
}

std::string bytes_of(unsigned choice, std::string_view rest) {
  const std::string begun = std::string(kPreface) + frame(kSettings, 0, 0, {}) + frame(kSettings, kEnds, 0, {});
  switch (choice) {
    case 0:
      return std::string(rest);
    case 1:
      return begun + std::string(rest);
    case 2:
      return begun + frame(kHeaders, kEndsHead, 1, rest) + frame(kData, kEnds, 1, prefixed(infer_request("echo"))) +
             frame(kHeaders, kEndsHead | kEnds, 3, rest);
    default:
      return begun + frames_of(rest);
  }
}

struct Endpoint {
  Endpoint() : edge(nullptr, config()), loop(edge) {}

  static Config config() {
    Config config;
    const std::string folder = "/tmp/h2_target." + std::to_string(::getpid());
    config.address = "unix:" + folder;
    config.grpc.address = "unix:" + folder + ".grpc";
    config.limits.max_body_bytes = 1 << 20;
    config.max_json_bytes = 1 << 18;
    config.max_buffered_bytes = 64 << 20;
    return config;
  }

  Edge edge;
  Loop loop;  // of this thread
};

// A turn of the loop after another, with what the client does before each.
class Conversation {
 public:
  Conversation(Endpoint& endpoint, std::string_view bytes, bool in_parts) : endpoint_(endpoint), bytes_(bytes) {
    int sockets[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0,
            "there are descriptors");
    client_ = Descriptor(sockets[0]);
    auto connection = make_grpc_connection(endpoint.loop, Transport(Descriptor(sockets[1]), nullptr), "peer", "");
    connection_ = connection;
    endpoint.loop.add(std::move(connection));
    first_ = in_parts ? bytes.size() / 2 : bytes.size();
  }

  void run() {
    send(first_);
    endpoint_.loop.post([this] { go_on(); });
    endpoint_.loop.run();
  }

 private:
  void go_on() {
    constexpr int kTurns = 3;
    receive();
    if (++turns_ == 1) send(bytes_.size());
    if (turns_ == kTurns) {
      check_frames();
      client_ = Descriptor();
    }
    if (turns_ > kTurns && connection_.expired()) return endpoint_.loop.stop();
    endpoint_.loop.post([this] { go_on(); });
  }

  void send(size_t size) {
    const std::string_view part = bytes_.substr(0, size);
    if (!part.empty()) static_cast<void>(!::send(client_.get(), part.data(), part.size(), MSG_NOSIGNAL));
    bytes_.remove_prefix(part.size());
  }

  void receive() {
    char received[16 << 10];
    ssize_t size;
    while (client_ && (size = ::recv(client_.get(), received, sizeof received, 0)) > 0)
      received_.append(received, static_cast<size_t>(size));
  }

  void check_frames() const {
    constexpr size_t kLongest = 1 << 20;
    for (std::string_view rest = received_; !rest.empty();) {
      require(rest.size() >= kFrameHead, "frames have whole heads");
      size_t size = 0;
      for (size_t byte = 0; byte < 3; ++byte) size = size << 8U | static_cast<uint8_t>(rest[byte]);
      require(size <= kLongest && kFrameHead + size <= rest.size(), "frames are whole");
      require(static_cast<uint8_t>(rest[3]) <= kContinuation, "frames have a known kind");
      rest.remove_prefix(kFrameHead + size);
    }
  }

  Endpoint& endpoint_;
  std::string_view bytes_;
  size_t first_ = 0;
  Descriptor client_;
  std::weak_ptr<ClientConnection> connection_;
  std::string received_;
  int turns_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  static Endpoint& endpoint = *new Endpoint();
  const std::string bytes = bytes_of(data[0] & 3U, {reinterpret_cast<const char*>(data) + 1, size - 1});
  Conversation(endpoint, bytes, data[0] & 4U).run();
  require(!leftovers(), "requests and responses are deleted");
  require(!endpoint.loop.metrics().in_flight.value(), "no request is in flight");
  require(!endpoint.edge.account().used(), "all memory is given back");
  return 0;
}
