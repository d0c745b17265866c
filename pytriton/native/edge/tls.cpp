#include "tls.h"

#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../frames/failure.h"

namespace pytriton::http {

namespace {

constexpr size_t kRecordBytes = 16 << 10;  // of TLS

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, OpenSsl& to) {
#define PYTRITON_FIND(name) find(library, #name, to.name)
  return PYTRITON_FIND(TLS_server_method) && PYTRITON_FIND(SSL_CTX_new) && PYTRITON_FIND(SSL_CTX_free) &&
         PYTRITON_FIND(SSL_CTX_use_certificate_chain_file) && PYTRITON_FIND(SSL_CTX_use_PrivateKey_file) &&
         PYTRITON_FIND(SSL_CTX_check_private_key) && PYTRITON_FIND(SSL_CTX_load_verify_locations) &&
         PYTRITON_FIND(SSL_load_client_CA_file) && PYTRITON_FIND(SSL_CTX_set_client_CA_list) &&
         PYTRITON_FIND(SSL_CTX_set_verify) && PYTRITON_FIND(SSL_CTX_set_session_id_context) &&
         PYTRITON_FIND(SSL_CTX_set_alpn_select_cb) && PYTRITON_FIND(SSL_CTX_set_options) &&
         PYTRITON_FIND(SSL_CTX_ctrl) && PYTRITON_FIND(SSL_new) && PYTRITON_FIND(SSL_free) &&
         PYTRITON_FIND(SSL_get0_alpn_selected) && PYTRITON_FIND(SSL_set_bio) && PYTRITON_FIND(SSL_set_accept_state) &&
         PYTRITON_FIND(SSL_is_init_finished) && PYTRITON_FIND(SSL_read) && PYTRITON_FIND(SSL_write) &&
         PYTRITON_FIND(SSL_shutdown) && PYTRITON_FIND(SSL_get_error) && PYTRITON_FIND(BIO_new) &&
         PYTRITON_FIND(BIO_s_mem) && PYTRITON_FIND(BIO_read) && PYTRITON_FIND(BIO_write) && PYTRITON_FIND(BIO_ctrl) &&
         PYTRITON_FIND(ERR_get_error) && PYTRITON_FIND(ERR_error_string_n) && PYTRITON_FIND(ERR_clear_error);
#undef PYTRITON_FIND
}

// The first of ours that the client offers; one that offers only others goes without an agreement.
int select_protocol(OpenSsl::Session*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                    unsigned in_size, void* protocols) {
  constexpr int kSelected = 0, kNone = 3;
  for (const std::string& wanted : *static_cast<const std::vector<std::string>*>(protocols)) {
    for (unsigned at = 0; at < in_size && in[at] < in_size - at; at += in[at] + 1U) {
      if (std::string_view(reinterpret_cast<const char*>(in + at + 1), in[at]) != wanted) continue;
      *out = in + at + 1;
      *out_size = in[at];
      return kSelected;
    }
  }
  return kNone;
}

}  // namespace

const OpenSsl& OpenSsl::get() {
  static const OpenSsl found = [] {
    OpenSsl functions{};
    if (find_all(RTLD_DEFAULT, functions)) return functions;
    void* const library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library && find_all(library, functions)) return functions;
    throw Failure(Code::unavailable, "HTTP with TLS needs OpenSSL 3 (libssl.so.3), which cannot be found");
  }();
  return found;
}

std::unique_ptr<TlsContext> TlsContext::make(const std::string& certificate, const std::string& key,
                                             const std::string& authorities, std::vector<std::string> protocols) {
  if (certificate.empty()) return nullptr;
  return std::unique_ptr<TlsContext>(new TlsContext(certificate, key, authorities, std::move(protocols)));
}

TlsContext::TlsContext(const std::string& certificate, const std::string& key, const std::string& authorities,
                       std::vector<std::string> protocols)
    : library_(OpenSsl::get()),
      protocols_(std::move(protocols)),
      context_(library_.SSL_CTX_new(library_.TLS_server_method()), Deleter{&library_}) {
  OpenSsl::Context* const context = context_.get();
  require(context != nullptr, "TLS");
  library_.SSL_CTX_ctrl(context, OpenSsl::kCtrlMinimalVersion, OpenSsl::kTls12, nullptr);
  library_.SSL_CTX_ctrl(context, OpenSsl::kCtrlMode, OpenSsl::kReleaseBuffers, nullptr);
  library_.SSL_CTX_set_options(context, OpenSsl::kNoRenegotiation);
  library_.SSL_CTX_set_alpn_select_cb(context, select_protocol, const_cast<std::vector<std::string>*>(&protocols_));
  constexpr unsigned char kName[] = "pytriton";
  library_.SSL_CTX_set_session_id_context(context, kName, sizeof kName);
  require(library_.SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) == 1, certificate);
  require(library_.SSL_CTX_use_PrivateKey_file(context, key.c_str(), OpenSsl::kPem) == 1, key);
  require(library_.SSL_CTX_check_private_key(context) == 1, key);
  if (authorities.empty()) return;
  require(library_.SSL_CTX_load_verify_locations(context, authorities.c_str(), nullptr) == 1, authorities);
  library_.SSL_CTX_set_client_CA_list(context, library_.SSL_load_client_CA_file(authorities.c_str()));
  library_.SSL_CTX_set_verify(context, OpenSsl::kVerifyPeer | OpenSsl::kFailIfNoCertificate, nullptr);
}

void TlsContext::require(bool is_done, const std::string& path) const {
  if (is_done) return;
  char text[256] = "";
  library_.ERR_error_string_n(library_.ERR_get_error(), text, sizeof text);
  library_.ERR_clear_error();
  throw Failure(Code::invalid_argument, "HTTP with TLS cannot use " + path + ": " + text);
}

TlsSession::TlsSession(const TlsContext& context)
    : library_(context.library()), session_(library_.SSL_new(context.get()), Deleter{&library_}) {
  if (!session_) throw std::bad_alloc();
  in_ = library_.BIO_new(library_.BIO_s_mem());
  out_ = library_.BIO_new(library_.BIO_s_mem());
  library_.SSL_set_bio(session_.get(), in_, out_);
  library_.SSL_set_accept_state(session_.get());
}

bool TlsSession::is_handshaking() const { return library_.SSL_is_init_finished(session_.get()) == 0; }

std::string_view TlsSession::agreed_protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  library_.SSL_get0_alpn_selected(session_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

ssize_t TlsSession::receive(int socket, char* data, size_t size) {
  char received[kRecordBytes];
  while (true) {
    library_.ERR_clear_error();
    const int read = library_.SSL_read(session_.get(), data, static_cast<int>(std::min<size_t>(size, INT32_MAX)));
    const int error = read > 0 ? 0 : library_.SSL_get_error(session_.get(), read);
    if (!flush(socket) && errno != EAGAIN) return -1;
    if (read > 0) return read;
    if (error == OpenSsl::kZeroReturn) return 0;
    if (error != OpenSsl::kWantRead) {
      errno = EPROTO;
      return -1;
    }
    ssize_t count;
    do count = ::recv(socket, received, sizeof received, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count <= 0) return count;
    library_.BIO_write(in_, received, static_cast<int>(count));
  }
}

ssize_t TlsSession::send(int socket, const iovec* parts, size_t count) {
  if (!flush(socket)) return -1;
  if (!taken_) {
    char record[kRecordBytes];
    size_t size = 0;
    for (size_t index = 0; index < count && size < sizeof record; ++index) {
      const size_t of_part = std::min(parts[index].iov_len, sizeof record - size);
      std::memcpy(record + size, parts[index].iov_base, of_part);
      size += of_part;
    }
    encrypt(record, size);
    taken_ = size;
    if (!flush(socket)) return -1;
  }
  return static_cast<ssize_t>(std::exchange(taken_, 0));
}

void TlsSession::announce(int socket, std::string_view text) {
  encrypt(text.data(), text.size());
  flush(socket);
}

void TlsSession::shut_down(int socket) {
  library_.ERR_clear_error();
  library_.SSL_shutdown(session_.get());
  flush(socket);
}

void TlsSession::encrypt(const char* data, size_t size) {
  library_.ERR_clear_error();
  library_.SSL_write(session_.get(), data, static_cast<int>(size));  // into memory, which takes all of it
}

bool TlsSession::flush(int socket) {
  const long pending = library_.BIO_ctrl(out_, OpenSsl::kBioPending, 0, nullptr);
  if (pending > 0) {
    const size_t before = encrypted_.size();
    encrypted_.resize(before + static_cast<size_t>(pending));
    library_.BIO_read(out_, encrypted_.data() + before, static_cast<int>(pending));
  }
  size_t sent = 0;
  while (sent < encrypted_.size()) {
    const ssize_t count =
        ::send(socket, encrypted_.data() + sent, encrypted_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    sent += static_cast<size_t>(count);
  }
  if (sent == encrypted_.size()) {
    encrypted_.clear();
    if (encrypted_.capacity() > 2 * kRecordBytes) encrypted_.shrink_to_fit();
    return true;
  }
  encrypted_.erase(0, sent);
  return false;
}

}  // namespace pytriton::http
