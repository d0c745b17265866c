// What nghttp2 calls, and what is submitted to it.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <string_view>

namespace pytriton::http {

class H2Connection;
struct GrpcStream;

constexpr size_t kMostOut = 1 << 20;  // bytes that are made before the socket has taken them

// A field of a head, which has to stay until the head is submitted.
inline nghttp2_nv field(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

nghttp2_session* make_session(H2Connection& connection);  // throws std::bad_alloc

// The head of an answer, which is all of it if there is no message.
void submit_headers(nghttp2_session* session, GrpcStream& stream);

}  // namespace pytriton::http
