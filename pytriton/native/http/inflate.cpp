#include "inflate.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace pytriton::http {

namespace {

constexpr size_t kFirstContentRoom = 64 << 10;

// zlib.h
struct Stream {
  const char* next_in;
  unsigned available_in;
  unsigned long total_in;
  char* next_out;
  unsigned available_out;
  unsigned long total_out;
  const char* message;
  void* state;
  void *allocate, *free, *user;
  int data_type;
  unsigned long adler, reserved;
};
constexpr int kOk = 0, kStreamEnd = 1, kBufferError = -5, kNoFlush = 0;
constexpr int kAnyFormat = 15 + 32;  // the largest window, and either format
constexpr const char* kVersion = "1.2.11";

// The server's library is in the process.
struct Zlib {
  int (*init)(Stream*, int window_bits, const char* version, int stream_size);
  int (*inflate)(Stream*, int flush);
  int (*end)(Stream*);

  static const Zlib& get() {
    static const Zlib found = [] {
      void* library = RTLD_DEFAULT;
      if (!dlsym(library, "inflateInit2_")) library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
      Zlib zlib{};
      if (!library && !dlsym(RTLD_DEFAULT, "inflateInit2_")) return zlib;
      zlib.init = reinterpret_cast<decltype(zlib.init)>(dlsym(library, "inflateInit2_"));
      zlib.inflate = reinterpret_cast<decltype(zlib.inflate)>(dlsym(library, "inflate"));
      zlib.end = reinterpret_cast<decltype(zlib.end)>(dlsym(library, "inflateEnd"));
      return zlib;
    }();
    return found;
  }
};

}  // namespace

Inflated inflate(std::string_view data, uint64_t most_bytes, uint64_t most_buffered, Buffer& to, size_t& size) {
  const Zlib& zlib = Zlib::get();
  Stream stream{};
  if (!zlib.init || !zlib.inflate || !zlib.end || zlib.init(&stream, kAnyFormat, kVersion, sizeof stream) != kOk)
    return Inflated::no_library;
  const struct End {
    const Zlib& zlib;
    Stream& stream;
    ~End() { zlib.end(&stream); }
  } end{zlib, stream};
  size = 0;
  while (true) {
    if (size == to.capacity()) {
      const size_t capacity = std::max(kFirstContentRoom, 2 * size);
      if (size > most_bytes || Buffer::total() + capacity - size > most_buffered || !to.reserve(capacity))
        return Inflated::too_long;
    }
    const auto given = static_cast<unsigned>(std::min<size_t>(data.size(), UINT_MAX));
    const auto room = static_cast<unsigned>(std::min<size_t>(to.capacity() - size, UINT_MAX));
    stream.next_in = data.data();
    stream.available_in = given;
    stream.next_out = to.data() + size;
    stream.available_out = room;
    const int result = zlib.inflate(&stream, kNoFlush);
    data.remove_prefix(given - stream.available_in);
    size += room - stream.available_out;
    if (result == kStreamEnd) break;
    const bool is_stuck = result == kBufferError || (data.empty() && stream.available_out > 0);
    if ((result != kOk && result != kBufferError) || is_stuck) return Inflated::broken;
  }
  if (size > most_bytes) return Inflated::too_long;
  return data.empty() ? Inflated::complete : Inflated::has_more;
}

}  // namespace pytriton::http
