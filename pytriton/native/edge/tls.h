// TLS, by OpenSSL: a server's certificate, and what is said on one connection.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "openssl.h"

namespace pytriton::http {

class TlsContext {
 public:
  // Of files in PEM; nullptr without a certificate. `protocols`: what clients may agree on, the first before the
  // others. Throws Failure if a file cannot be used.
  static std::unique_ptr<TlsContext> make(const std::string& certificate, const std::string& key,
                                          const std::string& authorities, std::vector<std::string> protocols);

  const OpenSsl& library() const { return library_; }
  OpenSsl::Context* get() const { return context_.get(); }

 private:
  TlsContext(const std::string& certificate, const std::string& key, const std::string& authorities,
             std::vector<std::string> protocols);
  void require(bool is_done, const std::string& path) const;

  struct Deleter {
    const OpenSsl* library;
    void operator()(OpenSsl::Context* context) const { library->SSL_CTX_free(context); }
  };
  const OpenSsl& library_;
  const std::vector<std::string> protocols_;
  std::unique_ptr<OpenSsl::Context, Deleter> context_;
};

// As Transport, over a socket of its caller's. Used by one thread at a time.
class TlsSession {
 public:
  explicit TlsSession(const TlsContext& context);

  ssize_t receive(int socket, char* data, size_t size);
  ssize_t send(int socket, const iovec* parts, size_t count);
  void announce(int socket, std::string_view text);  // as far as there is room
  void shut_down(int socket);
  bool is_handshaking() const;
  std::string_view agreed_protocol() const;  // empty: none

 private:
  bool flush(int socket);  // false: something remains, or the socket is broken, with errno
  void encrypt(const char* data, size_t size);

  struct Deleter {
    const OpenSsl* library;
    void operator()(OpenSsl::Session* session) const { library->SSL_free(session); }
  };
  const OpenSsl& library_;
  std::unique_ptr<OpenSsl::Session, Deleter> session_;
  bio_st *in_ = nullptr, *out_ = nullptr;  // the session's
  std::string encrypted_;                  // that the socket has not taken
  size_t taken_ = 0;                       // bytes of the caller's that it stands for
};

}  // namespace pytriton::http
