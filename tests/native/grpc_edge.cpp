// gRPC at the edge, with clients that call, stream, stop, send damaged bytes and go at any time, beside a server
// that answers with its inputs. Run with sanitizers.
//
// Usage: grpc_edge <connections of each client>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chance.h"
#include "echo_server.h"
#include "edge/clock.h"
#include "edge/edge.h"
#include "grpc/proto.h"

using pytriton::Descriptor;
using namespace pytriton::http;

namespace {

constexpr int kClients = 24;  // so many that the loops send answers of other threads
constexpr const char *kSocket = "grpc.sock", *kControl = "grpc_control.sock";
constexpr int kTimeout_ms = 60'000;
constexpr int kPending = -1;

Descriptor connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);  // NOLINT: it is short
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return Descriptor();
  return socket;
}

std::string prefixed(const std::string& message) {
  std::string text(5, '\0');
  for (size_t byte = 0; byte < 4; ++byte) text[1 + byte] = static_cast<char>(message.size() >> (24 - 8 * byte));
  return text + message;
}

std::string infer_request(const std::string& model, size_t floats, const std::string& id) {
  std::string text, input, shape;
  ProtoWriter writer(text), of(input), packed(shape);
  writer.bytes(1, model);
  writer.bytes(3, id);
  of.bytes(1, "x");
  of.bytes(2, "FP32");
  packed.raw_varint(1);
  packed.raw_varint(floats);
  of.bytes(3, shape);
  writer.bytes(5, input);
  writer.bytes(7, std::string(floats * 4, 'f'));
  return text;
}

nghttp2_nv field(const char* name, const std::string& value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name)),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), std::strlen(name), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

struct Rpc {
  std::string body, answer;
  size_t sent = 0;
  int status = kPending;  // of gRPC
  bool is_closed = false;
};

// A connection of a client, which may damage what it sends.
class TestClient {
 public:
  explicit TestClient(Random& random) : random_(random), socket_(connect_to(kSocket)) {
    require(static_cast<bool>(socket_), "connections are accepted");
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void*) {
          auto* const rpc = static_cast<Rpc*>(nghttp2_session_get_stream_user_data(session, frame->hd.stream_id));
          if (rpc && std::string(name, name + name_size) == "grpc-status")
            rpc->status = std::stoi(std::string(value, value + value_size));
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data, size_t size, void*) {
          if (auto* const rpc = static_cast<Rpc*>(nghttp2_session_get_stream_user_data(session, id)))
            rpc->answer.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session* session, int32_t id, uint32_t, void*) {
          if (auto* const rpc = static_cast<Rpc*>(nghttp2_session_get_stream_user_data(session, id)))
            rpc->is_closed = true;
          return 0;
        });
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~TestClient() { nghttp2_session_del(session_); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  int32_t call(const std::string& path, std::string body, const std::string& accepted = "identity") {
    auto rpc = std::make_unique<Rpc>();
    rpc->body = std::move(body);
    const std::string post = "POST", http = "http", type = "application/grpc", trailers = "trailers", where = "edge",
                      timeout = "60S";
    const nghttp2_nv fields[] = {field(":method", post),         field(":scheme", http),
                                 field(":path", path),           field(":authority", where),
                                 field("te", trailers),          field("content-type", type),
                                 field("grpc-timeout", timeout), field("grpc-accept-encoding", accepted)};
    nghttp2_data_provider2 provider{};
    provider.source.ptr = rpc.get();
    provider.read_callback = [](nghttp2_session*, int32_t, uint8_t* to, size_t most, uint32_t* flags,
                                nghttp2_data_source* source, void*) -> nghttp2_ssize {
      auto& rpc = *static_cast<Rpc*>(source->ptr);
      const size_t size = std::min(most, rpc.body.size() - rpc.sent);
      std::memcpy(to, rpc.body.data() + rpc.sent, size);
      rpc.sent += size;
      if (rpc.sent == rpc.body.size()) *flags = NGHTTP2_DATA_FLAG_EOF;
      return static_cast<nghttp2_ssize>(size);
    };
    const int32_t id = nghttp2_submit_request2(session_, nullptr, fields, std::size(fields), &provider, rpc.get());
    rpcs_[id] = std::move(rpc);
    return id;
  }

  void reset(int32_t id) { nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL); }

  // One turn; false: the connection is over, or nothing comes. `is_sure`: something has to come.
  bool turn(bool damages, bool is_sure = true) {
    const uint8_t* data = nullptr;
    nghttp2_ssize size;
    while ((size = nghttp2_session_mem_send2(session_, &data)) > 0) {
      std::string bytes(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
      if (damages && up_to(random_, 3) == 0)
        bytes[up_to(random_, bytes.size() - 1)] = static_cast<char>(up_to(random_, 255));
      for (std::string_view rest = bytes; !rest.empty();) {
        const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent < 0) return false;
        rest.remove_prefix(static_cast<size_t>(sent));
      }
    }
    pollfd waiting{socket_.get(), POLLIN, 0};
    const int count = ::poll(&waiting, 1, damages || !is_sure ? 50 : kTimeout_ms);
    if (count <= 0) {
      require(damages || !is_sure, "a right request is answered");
      return false;
    }
    uint8_t received[16 << 10];
    const ssize_t got = ::recv(socket_.get(), received, sizeof received, 0);
    return got > 0 && nghttp2_session_mem_recv2(session_, received, static_cast<size_t>(got)) >= 0;
  }

  Rpc& rpc(int32_t id) { return *rpcs_.at(id); }

 private:
  Random& random_;
  Descriptor socket_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, std::unique_ptr<Rpc>> rpcs_;
};

size_t messages_in(const std::string& answer) {
  size_t count = 0;
  for (size_t at = 0; at < answer.size(); ++count) {
    size_t size = 0;
    for (size_t byte = 1; byte < 5; ++byte) size = size << 8 | static_cast<uint8_t>(answer.at(at + byte));
    at += 5 + size;
    require(at <= answer.size(), "messages are whole");
  }
  return count;
}

std::string method(const char* name) { return std::string("/inference.GRPCInferenceService/") + name; }

std::string repeated(std::initializer_list<std::string> messages) {
  std::string all;
  for (const std::string& each : messages) all += each;
  return all;
}

void call(uint64_t seed, int rounds) {
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    TestClient client(random);
    struct Expected {
      int32_t id;
      int status;
      size_t messages;
    };
    std::vector<Expected> expected;
    const bool damages = up_to(random, 3) == 0, leaves = up_to(random, 4) == 0;
    for (size_t count = 1 + up_to(random, 8); count--;) {
      const uint64_t kind = up_to(random, 8);
      const size_t floats = up_to(random, 3) ? 2 : 1 + up_to(random, 100'000);
      const std::string message = prefixed(infer_request("echo", floats, "i"));
      const std::string accepted = up_to(random, 1) ? "identity,deflate,gzip" : "identity";
      if (kind <= 2) {
        expected.push_back({client.call(method("ModelInfer"), message, accepted), 0, 1});
      } else if (kind == 3) {
        expected.push_back(
            {client.call(method("ModelStreamInfer"), repeated({message, message, message}), accepted), 0, 3});
      } else if (kind == 4) {
        const std::string streams = prefixed(infer_request("stream", floats, "s"));
        const int32_t id = client.call(method("ModelStreamInfer"), repeated({streams, message, streams}), accepted);
        if (up_to(random, 1)) {
          client.turn(damages, false);
          client.reset(id);
        } else {
          expected.push_back({id, 0, 0});
        }
      } else if (kind == 5) {
        expected.push_back({client.call(method("ModelInfer"), prefixed(infer_request("unknown", 2, ""))), 5, 0});
      } else if (kind == 6) {
        expected.push_back({client.call(method("ServerLive"), prefixed("")), 0, 1});
      } else if (kind == 7) {
        expected.push_back({client.call(method("LogSettings"), prefixed("")), 14, 0});  // there is nobody behind
      } else {
        expected.push_back({client.call(method("Nothing"), prefixed("")), 12, 0});
      }
    }
    if (leaves) {
      client.turn(damages, false);
      continue;
    }
    const auto is_open = [&] {
      return std::any_of(expected.begin(), expected.end(),
                         [&](const Expected& each) { return !client.rpc(each.id).is_closed; });
    };
    bool is_well = true;
    while (is_well && is_open()) is_well = client.turn(damages);
    if (damages) continue;
    require(is_well, "the connection stays while requests are right");
    for (const Expected& each : expected) {
      const Rpc& rpc = client.rpc(each.id);
      require(rpc.status == each.status, "a request has the right status, not " + std::to_string(rpc.status));
      const size_t count = messages_in(rpc.answer);
      require(!each.messages || count == each.messages, "each request is answered");
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "usage: grpc_edge <connections of each client>");
  has_threads = true;
  Config config;
  config.address = config.grpc.address = std::string("unix:") + kSocket;  // all connections are handed over
  config.threads = 2;
  config.control = kControl;
  config.access_log = "grpc_access.log";
  config.max_buffered_bytes = 256 << 20;
  config.grpc.response_compression = "low";
  auto edge = std::make_unique<Edge>(nullptr, config);
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (uint64_t seed = 1; seed <= kClients; ++seed) clients.emplace_back(call, seed, std::stoi(arguments[1]));
  for (auto& client : clients) client.join();

  // A drain waits for the calls in flight, and refuses connections.
  Random random(1);  // NOLINT(bugprone-random-generator-seed): the same in each run
  TestClient last(random);
  const int32_t id = last.call(method("ModelInfer"), prefixed(infer_request("echo", 2, "")));
  last.turn(false);
  std::atomic<bool> is_drained{false};
  edge->drain([&] { is_drained = true; });
  while (!last.rpc(id).is_closed) require(last.turn(false), "a request in flight is answered");
  require(last.rpc(id).status == 0, "and well");
  while (last.turn(false)) {
  }
  while (!is_drained) std::this_thread::yield();
  require(!connect_to(kSocket), "no connection is accepted after that");
  edge->stop(10 * kSecond_ns);
  wait_for_answers();
  edge.reset();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
