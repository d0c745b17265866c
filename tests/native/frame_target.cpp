#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <memory>

#include "frames/failure.h"
#include "frames/json.h"
#include "frames/tensors.h"
#include "proxy/codec.h"
#include "proxy/socket_channel.h"
#include "server.h"
#include "target.h"

namespace {

using namespace pytriton;

constexpr uint32_t kMaxRequests = 4;
constexpr size_t kMemoryBytes = 256 << 10;

// A connection whose other end is ours.
class Connection {
 public:
  Connection() : memory_(memfd_create("peer", MFD_CLOEXEC)) {
    int ends[2];
    const std::vector<char> zeros(kMemoryBytes);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) broken("there are sockets");
    if (pwrite(memory_.get(), zeros.data(), kMemoryBytes, 0) != kMemoryBytes) broken("there is memory");
    peer_ = Descriptor(ends[1]);
    channel = std::make_unique<SocketChannel>(Descriptor(ends[0]), std::make_unique<Arena>(),
                                              PeerMemory(Descriptor(fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0))));
  }

  void send(const uint8_t* data, size_t size) const {
    if (::send(peer_.get(), data, size, MSG_NOSIGNAL) < 0) broken("a frame can be sent");
  }

  void spill(const uint8_t* data, size_t size) const {
    if (pwrite(memory_.get(), data, size, 0) != static_cast<ssize_t>(size)) broken("there is memory");
    Outgoing outer;
    outer.kind = Kind::spill;
    outer.requests = 1;
    outer.region = 0;
    outer.tensors.push_back({0, 0, 2, {static_cast<int64_t>(size)}, size, {}});
    std::vector<char> message;
    pack(outer, message);
    send(reinterpret_cast<const uint8_t*>(message.data()), message.size());
  }

  std::unique_ptr<Channel> channel;

 private:
  Descriptor memory_, peer_;
};

Model description() {
  Model model;
  model.outputs = {{"floats", dtype_code("TYPE_FP32")}, {"strings", kBytes}, {"integers", dtype_code("TYPE_INT64")}};
  return model;
}

Requests calls(uint32_t requests) {
  Requests result;
  for (; requests > 0; --requests) {
    std::vector<std::string> wanted = {"strings", "floats", "integers"};
    if (requests == kMaxRequests) wanted.pop_back();
    TRITONBACKEND_Request* request = make_request(std::make_shared<Ticket>(std::vector<float>(1)), std::move(wanted));
    result.push_back(std::make_shared<Request>(request, nullptr, requests % 2));
  }
  return result;
}

// As turns.cpp and reader.cpp do.
void answer(const Reply& reply, const Requests& calls) {
  static const Model model = description();
  try {
    respond(reply, calls, model);
  } catch (const FrameError& error) {
    for (const auto& call : calls) call->fail(error.code, error.what());
  }
  for (const auto& call : calls) call->send(true);
}

// As encode.cpp and details.cpp do with what clients send.
void read_strings(std::string_view sent, uint64_t elements) {
  is_utf8(sent);
  try {
    std::string lengths, bytes;
    split_strings(sent, elements, lengths, bytes);
  } catch (const BadRequest&) {  // of the client
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Connection connection;
  if (size < 2 || size > kMaxMessageBytes) return 0;
  read_strings({reinterpret_cast<const char*>(data) + 1, size - 1}, data[0] / 2);
  if (data[0] % 2) {
    connection.spill(data + 1, size - 1);
  } else {
    connection.send(data + 1, size - 1);
  }
  try {
    Reply reply;
    connection.channel->receive(reply);
    if (reply.frame.kind == Kind::response && reply.frame.requests <= kMaxRequests) {
      answer(reply, calls(reply.frame.requests));
    } else if (reply.frame.kind == Kind::error) {
      status_of(reply);
    }
  } catch (const FrameError&) {  // of the batch
  }
  return 0;
}
