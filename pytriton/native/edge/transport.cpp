#include "transport.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

namespace pytriton::http {

namespace {
constexpr size_t kMostDiscarded = 64 << 20;
}

ssize_t Transport::receive(char* data, size_t size) {
  return tls_ ? tls_->receive(socket_.get(), data, size) : receive_now(data, size);
}

ssize_t Transport::receive_now(char* data, size_t size) const {
  ssize_t received;
  do received = ::recv(socket_.get(), data, size, MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  return received;
}

ssize_t Transport::send(const iovec* parts, size_t count) {
  const ssize_t sent = send_now(parts, count);
  if (sent > 0) sent_.add(sent);
  return sent;
}

ssize_t Transport::send_now(const iovec* parts, size_t count) {
  if (tls_) return tls_->send(socket_.get(), parts, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  ssize_t sent;
  do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

int64_t Transport::taken() const {
  int waiting = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &waiting) == 0 ? sent_.value() - waiting : sent_.value();
}

bool Transport::has_unread() const {
  int waiting = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &waiting) == 0 && waiting > 0;
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

void Transport::reset() const {
  const linger at_once{1, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

bool Transport::discard() {
  char ignored[16 << 10];
  while (discarded_ < kMostDiscarded) {
    const ssize_t received = receive_now(ignored, sizeof ignored);
    if (received < 0 && errno == EAGAIN) return false;
    if (received <= 0) break;
    discarded_ += static_cast<size_t>(received);
  }
  return true;
}

}  // namespace pytriton::http
