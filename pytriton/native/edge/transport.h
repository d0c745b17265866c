// The bytes of a connection, with TLS or without.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "../frames/descriptor.h"
#include "tls.h"

namespace pytriton::http {

// A counter of one thread at a time, which others read.
class RelaxedCounter {
 public:
  RelaxedCounter() = default;
  RelaxedCounter(RelaxedCounter&& other) noexcept : value_(other.value()) {}
  void add(int64_t count) { value_.store(value() + count, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Used by one thread at a time, but for descriptor().
class Transport {
 public:
  Transport(Descriptor socket, const TlsContext* tls)
      : socket_(std::move(socket)), tls_(tls ? std::make_unique<TlsSession>(*tls) : nullptr) {}

  int descriptor() const { return socket_.get(); }
  bool is_encrypted() const { return tls_ != nullptr; }
  std::string_view agreed_protocol() const { return tls_ ? tls_->agreed_protocol() : std::string_view(); }
  bool is_handshaking() const { return tls_ && tls_->is_handshaking(); }

  // Bytes received; 0 at the end; -1 with errno, which is EAGAIN if there are none yet.
  ssize_t receive(char* data, size_t size);

  // Bytes taken; -1 with errno, which is EAGAIN if the client has to read first. The next call must begin with the same
  // bytes then.
  ssize_t send(const iovec* parts, size_t count);

  // Bytes that the client's side has taken, on any thread; roughly, if they are encrypted.
  int64_t taken() const;
  bool has_unread() const;  // the client's side has not taken all

  void announce(std::string_view text);  // what the client can do without, if there is room
  void shut_down();                      // says that there is no more
  void reset() const;                    // what was not taken is dropped when it is closed

  // Reads what the client still sends: a socket that is closed with unread bytes takes the answers away from the
  // client. Whether that was all, or is enough.
  bool discard();

 private:
  ssize_t receive_now(char* data, size_t size) const;
  ssize_t send_now(const iovec* parts, size_t count);

  Descriptor socket_;
  std::unique_ptr<TlsSession> tls_;
  RelaxedCounter sent_;
  size_t discarded_ = 0;  // bytes
};

}  // namespace pytriton::http
