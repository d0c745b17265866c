// The bytes of a connection.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>

#include "../descriptor.h"

namespace pytriton::http {

class Transport {
 public:
  explicit Transport(Descriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }

  // Bytes received; 0 at the end; -1 with errno, which is EAGAIN if there are none yet.
  ssize_t receive(char* data, size_t size) {
    ssize_t received;
    do received = ::recv(socket_.get(), data, size, MSG_DONTWAIT);
    while (received < 0 && errno == EINTR);
    return received;
  }

  // Bytes taken; -1 with errno, which is EAGAIN if the client has to read first.
  ssize_t send(const iovec* parts, size_t count) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = count;
    ssize_t sent;
    do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
  }

 private:
  Descriptor socket_;
};

}  // namespace pytriton::http
