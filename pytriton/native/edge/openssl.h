// The functions of OpenSSL 3 that are used, looked up in the process: the server has the library loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
struct ssl_st;
struct ssl_ctx_st;
struct ssl_method_st;
struct bio_st;
struct bio_method_st;
struct stack_st_X509_NAME;
}

namespace pytriton::http {

struct OpenSsl {
  using Context = ssl_ctx_st;
  using Session = ssl_st;
  using SelectProtocol = int (*)(Session*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                                 unsigned in_size, void* user);

  // The library in the process, or else the system's. Throws Failure if there is none.
  static const OpenSsl& get();

  static constexpr int kPem = 1, kWantRead = 2, kZeroReturn = 6;
  static constexpr int kVerifyPeer = 1, kFailIfNoCertificate = 2;
  static constexpr int kCtrlMode = 33, kCtrlMinimalVersion = 123, kBioPending = 10;
  static constexpr long kReleaseBuffers = 0x10, kTls12 = 0x0303;
  static constexpr uint64_t kNoRenegotiation = uint64_t{1} << 30;

  const ssl_method_st* (*TLS_server_method)();
  Context* (*SSL_CTX_new)(const ssl_method_st*);
  void (*SSL_CTX_free)(Context*);
  int (*SSL_CTX_use_certificate_chain_file)(Context*, const char* path);
  int (*SSL_CTX_use_PrivateKey_file)(Context*, const char* path, int type);
  int (*SSL_CTX_check_private_key)(const Context*);
  int (*SSL_CTX_load_verify_locations)(Context*, const char* file, const char* folder);
  stack_st_X509_NAME* (*SSL_load_client_CA_file)(const char* path);
  void (*SSL_CTX_set_client_CA_list)(Context*, stack_st_X509_NAME* names);
  void (*SSL_CTX_set_verify)(Context*, int mode, void* callback);
  int (*SSL_CTX_set_session_id_context)(Context*, const unsigned char* context, unsigned size);
  void (*SSL_CTX_set_alpn_select_cb)(Context*, SelectProtocol select, void* user);
  uint64_t (*SSL_CTX_set_options)(Context*, uint64_t options);
  long (*SSL_CTX_ctrl)(Context*, int command, long argument, void* pointer);
  Session* (*SSL_new)(Context*);
  void (*SSL_free)(Session*);
  void (*SSL_set_bio)(Session*, bio_st* in, bio_st* out);
  void (*SSL_set_accept_state)(Session*);
  int (*SSL_is_init_finished)(const Session*);
  void (*SSL_get0_alpn_selected)(const Session*, const unsigned char** name, unsigned* size);
  int (*SSL_read)(Session*, void* data, int size);
  int (*SSL_write)(Session*, const void* data, int size);
  int (*SSL_shutdown)(Session*);
  int (*SSL_get_error)(const Session*, int result);
  bio_st* (*BIO_new)(const bio_method_st*);
  const bio_method_st* (*BIO_s_mem)();
  int (*BIO_read)(bio_st*, void* data, int size);
  int (*BIO_write)(bio_st*, const void* data, int size);
  long (*BIO_ctrl)(bio_st*, int command, long argument, void* pointer);
  unsigned long (*ERR_get_error)();
  void (*ERR_error_string_n)(unsigned long error, char* text, size_t size);
  void (*ERR_clear_error)();
};

}  // namespace pytriton::http
