#include "worker.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "chance.h"
#include "frames/arena.h"
#include "frames/failure.h"
#include "server.h"

namespace {

using namespace pytriton;

constexpr uint8_t kMore = 4;
constexpr size_t kFlagsByte = 5;
constexpr int kPollMs = 20;
constexpr uint64_t kManyReplies = 3'000;  // last until cancellations are looked for

// A batch that waits for replies.
struct Task {
  uint32_t number, requests;
  std::vector<uint32_t> rows;
  std::vector<int64_t> shape;
  std::string values;
  uint64_t replies;    // still to be sent
  bool hangs = false;  // until it is cancelled
};

class Conversation {
 public:
  Conversation(Descriptor socket, bool streams, Random& random)
      : socket_(std::move(socket)), streams_(streams), random_(random), peer_(greet(socket_.get(), arena_)) {}

  // Until one side has had enough.
  void run(const std::atomic<bool>& is_closing) {
    while (!is_closing) {
      if (streams_ && up_to(random_, 300) == 0) hang(is_closing);
      pollfd ready{socket_.get(), POLLIN, 0};
      if (poll(&ready, 1, can_reply() ? 0 : kPollMs) > 0 && !take()) return;
      if (can_reply() && !reply()) return;
    }
  }

 private:
  // Reads nothing, though the socket gets full, until clients have given up all requests but those that are being sent,
  // or the proxy has; it may be waiting for another conversation already.
  void hang(const std::atomic<bool>& is_closing) {
    constexpr int kBeingSent = kMaxRequests + 1;  // a batch, and a request alone
    pollfd ended{socket_.get(), 0, 0};
    while (!is_closing && Ticket::open.load(std::memory_order_relaxed) > kBeingSent && poll(&ended, 1, kPollMs) == 0) {
    }
  }

  bool can_reply() const {
    return std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return !task.hangs; });
  }

  // The next frame of the proxy; false at the end of the connection.
  bool take() {
    const ssize_t length = recv(socket_.get(), message_, sizeof message_, 0);
    if (length <= 0) return false;
    Frame frame;
    unpack({message_, static_cast<size_t>(length)}, frame);
    for (const uint64_t region : frame.released) arena_.free(region);
    if (frame.kind == Kind::goodbye) return false;
    if (frame.kind == Kind::cancel) {
      for (Task& task : tasks_) {
        if (task.number != frame.number) continue;
        task.hangs = false;
        task.replies = 1;
      }
    }
    if (frame.kind != Kind::request) return true;
    if (frame.tensors.size() != 1 || !frame.has_rows) broken("equal requests travel as one tensor");
    const Placed& tensor = frame.tensors[0];
    Task task{frame.number, frame.requests, frame.rows, {}, std::string(tensor.size, 0), 1};
    for (unsigned axis = 0; axis < tensor.rank; ++axis)
      task.shape.push_back(static_cast<int64_t>(frame.shape(tensor)[axis]));
    if (frame.region == kNoRegion) {
      task.values = frame.data.substr(tensor.offset, tensor.size);
    } else {
      peer_.read(frame.region + tensor.offset, task.values.data(), tensor.size);
      released_.push_back(frame.region);
    }
    if (streams_ && up_to(random_, 3) == 0) task.replies += up_to(random_, 20);
    if (streams_ && up_to(random_, 30) == 0) task.replies += kManyReplies;
    task.hangs = streams_ && up_to(random_, 100) == 0;
    tasks_.push_back(std::move(task));
    return true;
  }

  // Replies to some batch; false if the connection is to die.
  bool reply() {
    Task* task = nullptr;
    do task = &tasks_[up_to(random_, tasks_.size() - 1)];
    while (task->hangs);
    const uint64_t chance = up_to(random_, task->replies > 1 ? 1'500 : 150);
    if (chance == 0) return false;
    if (chance == 1) return send_nonsense();
    const bool is_over = --task->replies == 0;
    Outgoing frame;
    frame.number = task->number;
    frame.requests = task->requests;
    frame.released.swap(released_);
    bool more = !is_over;
    if (chance < 12) {
      const bool isolate = up_to(random_, 1);
      frame.kind = Kind::error;
      frame.metadata = std::string(R"({"message":"no","code":"INTERNAL","isolate":)") + (isolate ? "true}" : "false}");
      if (chance == 11) frame.metadata = "{";  // no error
    } else if (chance < 18 && streams_) {
      frame.kind = Kind::end;
      more = false;
    } else {
      frame.kind = Kind::response;
      frame.has_rows = true;
      frame.rows = task->rows;
      frame.tensors.push_back(
          {0, kWholeBatch, 11, task->shape, task->values.size(), {{task->values.data(), task->values.size()}}});
      if (chance < 24) frame.metadata = R"({"errors":{"0":{"message":"no","code":"CANCELLED"}}})";
    }
    const bool sent = send(frame, more && streams_);
    if (!more || !streams_) tasks_.erase(tasks_.begin() + (task - tasks_.data()));
    return sent;
  }

  bool send(Outgoing& frame, bool more) {
    if (frame.data_bytes() > kInlineLimitBytes || (frame.data_bytes() && up_to(random_, 3) == 0)) {
      frame.region = arena_.allocate(frame.data_bytes());
      const Part& part = frame.tensors[0].parts[0];
      std::memcpy(arena_.at(frame.region), part.at, part.size);
    }
    std::vector<char> message;
    pack(frame, message);
    if (more) message[kFlagsByte] = static_cast<char>(message[kFlagsByte] | kMore);
    return ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) > 0;
  }

  bool send_nonsense() {
    uint64_t words[8];
    for (uint64_t& word : words) word = random_();
    return ::send(socket_.get(), words, sizeof words, MSG_NOSIGNAL) > 0;
  }

  Arena arena_;
  Descriptor socket_;
  const bool streams_;
  Random& random_;
  PeerMemory peer_;
  std::vector<Task> tasks_;
  std::vector<uint64_t> released_;
  char message_[kMaxMessageBytes];
};

}  // namespace

pytriton::Descriptor listen_at(const std::string& path) {
  Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) broken("a short path for the worker's socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 8) != 0) {
    broken("the worker can listen");
  }
  return listener;
}

pytriton::PeerMemory greet(int socket, const Arena& arena) {
  char text[4096];
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    cmsghdr aligned;
  } ancillary{};
  iovec piece{text, sizeof text};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof ancillary.bytes;
  if (recvmsg(socket, &message, 0) <= 0) throw PeerGone("no greeting");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  const int own = arena.fd();
  std::memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &own, sizeof own);
  const std::string hello = "{\"protocol\":5}";
  std::memcpy(text, hello.data(), hello.size());
  piece.iov_len = hello.size();
  sendmsg(socket, &message, MSG_NOSIGNAL);
  return PeerMemory(Descriptor(fd));
}

Worker::Worker(const std::string& path, bool streams, uint64_t seed) : streams_(streams), listener_(listen_at(path)) {
  thread_ = std::thread(&Worker::serve, this, seed);
}

Worker::~Worker() {
  is_closing_ = true;
  thread_.join();
}

void Worker::serve(uint64_t seed) {
  Random random(seed);
  while (!is_closing_) {
    pollfd ready{listener_.get(), POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0) continue;
    try {
      const auto conversation =
          std::make_unique<Conversation>(Descriptor(accept(listener_.get(), nullptr, nullptr)), streams_, random);
      conversation->run(is_closing_);
    } catch (const Failure&) {  // the proxy has gone
    }
  }
}
