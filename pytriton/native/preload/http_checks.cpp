// Part of the library that is preloaded into servers: functions of the C library and of zlib that the server's own HTTP
// endpoint calls while it reads what a client has sent.
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../frames/triton.h"
#include "preloaded.h"
#include "program.h"
#include "refusal.h"

extern "C" {
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_Server;
}

namespace {

using pytriton::is_in_program;
using pytriton::is_on;
using pytriton::next;

// The head of zlib's z_stream, which has not changed since 1995.
struct Stream {
  const unsigned char* next_in;
  unsigned available_in;
  unsigned long total_in;  // NOLINT(google-runtime-int): zlib's
  unsigned char* next_out;
  unsigned available_out;
  unsigned long total_out;  // NOLINT(google-runtime-int): zlib's
};

constexpr int kOk = 0, kStreamEnd = 1, kBufferError = -5;
constexpr uint64_t kMostInflatedBytes = 64 << 20;
constexpr unsigned kMostLevels = 64;

// Counts the levels of the JSON with which a body begins, and which tensors may follow.
class Nesting {
 public:
  // Whether no value so far is nested too deeply.
  bool add(const unsigned char* begin, const unsigned char* end) {
    for (; begin != end && !is_over_; ++begin) {
      const unsigned char letter = *begin;
      if (in_text_) {
        in_text_ = is_escaped_ || letter != '"';
        is_escaped_ = !is_escaped_ && letter == '\\';
      } else if (letter == '"') {
        in_text_ = true;
      } else if (letter == '{' || letter == '[') {
        if (++levels_ > kMostLevels) return false;
      } else if (letter == '}' || letter == ']') {
        is_over_ = levels_ <= 1;
        --levels_;
      }
      if (levels_ == 0 && letter > ' ') is_over_ = true;  // a body that is no JSON
    }
    return true;
  }

 private:
  bool is_over_ = false, in_text_ = false, is_escaped_ = false;
  unsigned levels_ = 0;
};

// What a body becomes: pieces of memory that the endpoint keeps where zlib has written them.
using Pieces = std::vector<std::pair<unsigned char*, size_t>>;

// A body that a thread inflates.
struct Body {
  Pieces pieces;
  bool is_refused = false, is_whole = false;
  Nesting nesting;

  // Memory that zlib may write to.
  void add(unsigned char* begin, size_t bytes) {
    if (pieces.empty() || begin < pieces.back().first || begin > pieces.back().first + pieces.back().second)
      pieces.emplace_back(begin, 0);
    auto& [first, length] = pieces.back();
    length = std::max(length, static_cast<size_t>(begin - first) + bytes);
  }
};
thread_local std::unordered_map<const Stream*, Body> bodies;

// The body that the thread has inflated for the request that it makes now. If the endpoint refuses the request, it
// loses this memory.
thread_local Pieces inflated;

// What libevent has before the memory of a buffer, in the same allocation.
struct Chain {
  Chain* next;
  size_t bytes;
  int64_t skipped;
  size_t used;
  unsigned flags;
  int references;
  unsigned char* buffer;
};

// Frees memory that the endpoint has lost.
void release(const Pieces& pieces) {
  for (const auto& [begin, bytes] : pieces) {
    auto* const chain = reinterpret_cast<Chain*>(begin) - 1;  // NOLINT
    if (chain->buffer == begin && chain->bytes >= bytes && chain->references == 1 && !chain->flags) std::free(chain);
  }
}

// Writes the marker over the beginning of what a body has become, which is made as long as that.
void mark(Stream& stream, Body& body) {
  const auto& marker = pytriton::refused_body();
  const size_t lacking = stream.total_out < marker.size() ? marker.size() - stream.total_out : 0;
  if (lacking > stream.available_out || body.pieces.empty()) return;
  stream.next_out += lacking;
  stream.available_out -= static_cast<unsigned>(lacking);
  stream.total_out += lacking;
  const auto [begin, bytes] = body.pieces.front();
  std::memcpy(begin, marker.data(), std::min(bytes, marker.size()));
}

}  // namespace

namespace pytriton {

const RefusedBody& refused_body() {
  static const RefusedBody marker = [] {
    RefusedBody bytes;
    // std::random_device needs glibc 2.36 where libstdc++ was built with it.
    while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) continue;
    bytes[0] = 0xff;  // not the beginning of JSON
    return bytes;
  }();
  return marker;
}

}  // namespace pytriton

extern "C" {

// std::stod throws std::out_of_range for the weight of an encoding that is too large or too small, which nothing
// catches. Without the error, the weight is infinite or 0.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
double strtod(const char* text, char** end) {
  static const auto library_s = next<decltype(strtod)>("strtod");
  const int before = errno;
  errno = 0;
  const double value = library_s(text, end);
  if (errno == 0 || (errno == ERANGE && is_on() && is_in_program(__builtin_return_address(0)))) errno = before;
  return value;
}

// The endpoint inflates a body whole, however large it becomes, and ignores zlib's errors but one, at which it loses
// the memory. So a body that is refused becomes one that the endpoint refuses: a marker is written over its beginning.
int inflate(Stream* stream, int flush) {
  static const auto zlib_s = next<decltype(inflate)>("inflate");
  static const auto zlib_s_end = next<int(Stream*)>("inflateEnd");
  if (!stream || !is_on() || !is_in_program(__builtin_return_address(0))) return zlib_s(stream, flush);
  if (stream->total_in == 0) {
    bodies[stream] = {};
    release(std::exchange(inflated, {}));  // of a request that was refused before the server knew of it
  }
  Body& body = bodies[stream];
  body.add(stream->next_out, stream->available_out);
  if (!body.is_refused) {
    unsigned char* const begin = stream->next_out;
    const int status = zlib_s(stream, flush);
    const bool is_shallow = body.nesting.add(begin, stream->next_out);
    body.is_whole = status == kStreamEnd;
    const bool is_good = status == kOk || status == kStreamEnd || status == kBufferError;
    if (is_good && is_shallow && stream->total_out <= kMostInflatedBytes) return status;
    body.is_refused = true;
    zlib_s_end(stream);
    mark(*stream, body);
  }
  stream->next_in += stream->available_in;  // as if it were read
  stream->total_in += stream->available_in;
  stream->available_in = 0;
  return kStreamEnd;
}

int inflateEnd(Stream* stream) {
  static const auto zlib_s = next<decltype(inflateEnd)>("inflateEnd");
  const auto found = bodies.find(stream);
  if (found == bodies.end()) return zlib_s(stream);
  Body body = std::move(found->second);
  bodies.erase(found);
  if (!body.is_refused && !body.is_whole && stream->total_in > 0) mark(*stream, body);
  inflated = std::move(body.pieces);
  return body.is_refused ? kOk : zlib_s(stream);
}

TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server* server, TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace* trace) {
  static const auto server_s = next<decltype(TRITONSERVER_ServerInferAsync)>("TRITONSERVER_ServerInferAsync");
  inflated.clear();  // the endpoint frees it with the request
  return server_s(server, request, trace);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request) {
  static const auto server_s =
      next<decltype(TRITONSERVER_InferenceRequestDelete)>("TRITONSERVER_InferenceRequestDelete");
  release(std::exchange(inflated, {}));
  return server_s(request);
}
}
