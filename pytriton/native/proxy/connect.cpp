// Finding the worker, and the greetings that both sides begin with.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "../frames/failure.h"
#include "../frames/json.h"
#include "interpreter.h"
#include "socket_channel.h"

namespace pytriton {

namespace {
constexpr int64_t kProtocol = 5;
constexpr size_t kMaxGreetingBytes = 4096;
constexpr double kRetryS = 0.01;

using Clock = std::chrono::steady_clock;

double seconds_until(Clock::time_point moment) { return std::chrono::duration<double>(moment - Clock::now()).count(); }

// A process of another user: trying again will not help.
struct WrongUser : PeerGone {
  using PeerGone::PeerGone;
};

[[noreturn]] void fail(const char* what) { throw PeerGone(std::string(what) + ": " + std::strerror(errno)); }

void set_timeout(int socket, double seconds) {
  timeval time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(time.tv_sec)) * 1e6);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// The path may be longer than the 107 bytes of an address, so it is reached through the descriptor of its folder.
void connect_socket(int socket, const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) throw PeerGone(path + " has no folder");
  const Descriptor folder(open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail("its folder cannot be opened");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "/proc/self/fd/" + std::to_string(folder.get()) + path.substr(slash);
  if (name.size() >= sizeof address.sun_path) throw PeerGone(path + " is too long");
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("connect");
}

// The kernel tells who listens, so it cannot be forged.
void check_peer(int socket, const std::string& path) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) fail("getsockopt");
  if (peer.uid == 0 || peer.uid == geteuid()) return;
  throw WrongUser(path + " is served by process " + std::to_string(peer.pid) + " of user " + std::to_string(peer.uid) +
                  "; that has to be a process of the server's user");
}

union Ancillary {  // room for one descriptor
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr aligned;
};

void send_greeting(int socket, const std::string& hello, int arena) {
  std::string text = "{\"protocol\":" + std::to_string(kProtocol) + hello + "}";
  iovec piece{text.data(), text.size()};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof ancillary.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &arena, sizeof arena);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) fail("sendmsg");
}

Descriptor receive_greeting(int socket) {
  char text[kMaxGreetingBytes];
  iovec piece{text, sizeof text};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // its padding would take a second descriptor, which nobody closes
  const ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (length < 0) fail("recvmsg");
  Descriptor memory;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    memory = Descriptor(fd);
  }
  if (length == 0) throw PeerGone("the connection was closed");
  try {
    const Json greeting = Json::parse({text, static_cast<size_t>(length)});
    const Json* protocol = greeting.find("protocol");
    if (!memory || !protocol || protocol->integer() != kProtocol) {
      throw PeerGone("the other side does not speak protocol " + std::to_string(kProtocol));
    }
  } catch (const FrameError& error) {
    throw PeerGone(std::string("the other side sent no greeting: ") + error.what());
  }
  return memory;
}

std::shared_ptr<Channel> connect_once(const std::string& path, const std::string& hello, double timeout_s) {
  if (auto channel = connect_locally(path)) return channel;
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) fail("socket");
  set_timeout(socket.get(), timeout_s);
  connect_socket(socket.get(), path);
  check_peer(socket.get(), path);
  auto arena = std::make_unique<Arena>();
  send_greeting(socket.get(), hello, arena->fd());
  PeerMemory peer(receive_greeting(socket.get()));
  set_timeout(socket.get(), 0);
  return std::make_shared<SocketChannel>(std::move(socket), std::move(arena), std::move(peer));
}
}  // namespace

std::shared_ptr<Channel> connect(const std::string& path, const std::string& hello, double timeout_s,
                                 double patience_s) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  while (true) {
    try {
      return connect_once(path, hello, std::max({seconds_until(deadline), patience_s, kRetryS}));
    } catch (const WrongUser&) {
      throw;
    } catch (const Failure& error) {
      if (seconds_until(deadline) < 0) {
        throw PeerGone(std::string("the process with the inference callable does not answer: ") + error.what());
      }
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kRetryS));
  }
}

}  // namespace pytriton
