#include "server_call.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "../frames/descriptor.h"
#include "../frames/failure.h"
#include "response_parser.h"

namespace pytriton::http {

namespace {

constexpr timeval kTimeout{10, 0};
constexpr size_t kMostBytes = 64 << 20;  // of an answer

[[noreturn]] void fail() { throw Failure(Code::unavailable, "the server's own endpoint cannot be reached"); }

Descriptor connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) fail();
  std::memcpy(address.sun_path, path.data(), path.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof kTimeout);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail();
  return socket;
}

void send_all(const Descriptor& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail();
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace

ServerAnswer ask_server(const std::string& path, std::string_view method, std::string_view target,
                        std::string_view body) {
  const Descriptor socket = connect_to(path);
  std::string request(method);
  request.append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
  if (method == "POST")
    request.append("Content-Type: application/json\r\nContent-Length: ")
        .append(std::to_string(body.size()))
        .append("\r\n");
  send_all(socket, request.append("\r\n").append(body));
  ResponseParser parser(false);
  char data[16 << 10];
  while (!parser.is_complete()) {
    const ssize_t received = ::recv(socket.get(), data, sizeof data, 0);
    if (received < 0 && errno == EINTR) continue;
    const bool is_right = received > 0    ? parser.parse(data, static_cast<size_t>(received))
                          : received == 0 ? parser.finish()
                                          : false;
    if (!is_right || parser.body.size() > kMostBytes) fail();
  }
  return {parser.status(), std::move(parser.body)};
}

}  // namespace pytriton::http
