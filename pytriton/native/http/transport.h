// The bytes of a connection, with TLS or without.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string_view>

#include "../descriptor.h"
#include "tls.h"

namespace pytriton::http {

// Used by one thread at a time, but for descriptor().
class Transport {
 public:
  Transport(Descriptor socket, const TlsContext* tls)
      : socket_(std::move(socket)), tls_(tls ? std::make_unique<TlsSession>(*tls) : nullptr) {}

  int descriptor() const { return socket_.get(); }
  bool is_encrypted() const { return tls_ != nullptr; }
  bool is_handshaking() const { return tls_ && tls_->is_handshaking(); }

  // Bytes received; 0 at the end; -1 with errno, which is EAGAIN if there are none yet.
  ssize_t receive(char* data, size_t size);

  // Bytes taken; -1 with errno, which is EAGAIN if the client has to read first. The next call must begin with the same
  // bytes then.
  ssize_t send(const iovec* parts, size_t count);

  void announce(std::string_view text);              // what the client can do without, if there is room
  void shut_down();                                  // says that there is no more
  ssize_t discard(char* memory, size_t size) const;  // as receive(), for bytes that nobody wants

 private:
  Descriptor socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace pytriton::http
