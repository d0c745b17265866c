#include "transport.h"

#include <sys/socket.h>

#include <cerrno>

namespace pytriton::http {

ssize_t Transport::receive(char* data, size_t size) {
  return tls_ ? tls_->receive(socket_.get(), data, size) : discard(data, size);
}

ssize_t Transport::send(const iovec* parts, size_t count) {
  if (tls_) return tls_->send(socket_.get(), parts, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  ssize_t sent;
  do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

void Transport::announce(std::string_view text) {
  if (tls_) return tls_->announce(socket_.get(), text);
  const iovec part{const_cast<char*>(text.data()), text.size()};
  send(&part, 1);
}

void Transport::shut_down() {
  if (tls_) tls_->shut_down(socket_.get());
  ::shutdown(socket_.get(), SHUT_WR);
}

ssize_t Transport::discard(char* memory, size_t size) const {
  ssize_t received;
  do received = ::recv(socket_.get(), memory, size, MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  return received;
}

}  // namespace pytriton::http
