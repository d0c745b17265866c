#include "listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "../frames/failure.h"
#include "edge.h"

namespace pytriton::http {

namespace {

constexpr int kBacklog = 4096;
constexpr unsigned kAcceptedAtOnce = 64;
constexpr int64_t kPause_ns = 10 * kMillisecond_ns;  // while the process has no descriptors left
constexpr std::string_view kUnix = "unix:";

Failure cannot_listen(const std::string& where, const std::string& why) {
  return {Code::unavailable, "the HTTP endpoint cannot listen on " + where + ": " + why};
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) throw cannot_listen(path, "the path is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor listen_on_path(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  remove_unused(path);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::bind(socket.get(), generic, sizeof address) != 0 || ::listen(socket.get(), kBacklog) != 0)
    throw cannot_listen(path, std::strerror(errno));
  return socket;
}

std::string name_of(const sockaddr_storage& address) {
  char name[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, name, sizeof name);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      inet_ntop(AF_INET, &six.s6_addr[12], name, sizeof name);
    } else {
      inet_ntop(AF_INET6, &six, name, sizeof name);
    }
  }
  return name;
}

}  // namespace

bool is_path(std::string_view address) { return address.substr(0, kUnix.size()) == kUnix; }

void remove_unused(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const sockaddr_un address = address_of(path);
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED)
    ::unlink(path.c_str());
}

Descriptor listen_on(const std::string& address, int port) {
  if (is_path(address)) return listen_on_path(address.substr(kUnix.size()));
  const std::string where = address + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found))
    throw cannot_listen(where, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0)
    throw cannot_listen(where, std::strerror(errno));
  return socket;
}

Descriptor inherited(int socket) {
  Descriptor descriptor(socket);
  if (::fcntl(socket, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(socket, F_SETFL, O_NONBLOCK) != 0)
    throw Failure(Code::unavailable, "the HTTP endpoint has not inherited its socket");
  return descriptor;
}

Listener::Listener(Loop& loop, Descriptor socket, Accepted accepted)
    : loop_(loop), socket_(std::move(socket)), accepted_(std::move(accepted)) {
  loop_.watch(socket_.get(), *this, EPOLLIN);
}

void Listener::ready(uint32_t /*events*/) { accept(); }

unsigned Listener::accept() {
  for (unsigned count = 0; count < kAcceptedAtOnce; ++count) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Descriptor accepted(
        ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        loop_.edge().spare_descriptors(-1);
        loop_.unwatch(socket_.get());
        loop_.after(kPause_ns, [this] {
          if (socket_) loop_.watch(socket_.get(), *this, EPOLLIN);
        });
      }
      if (errno == ECONNABORTED || errno == EINTR) continue;
      return count;
    }
    if (address.ss_family != AF_UNIX) {
      const int on = 1;
      ::setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    accepted_(std::move(accepted), name_of(address));
  }
  return kAcceptedAtOnce;
}

void Listener::close() {
  if (!socket_) return;
  while (accept() == kAcceptedAtOnce) {
  }
  loop_.unwatch(socket_.get());
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_ = Descriptor();
}

}  // namespace pytriton::http
