// The functions of zlib, which is in the process with the server.
#pragma once

namespace pytriton::http {

// z_stream of zlib.h
struct ZlibStream {
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

struct Zlib {
  static constexpr int kOk = 0, kStreamEnd = 1, kBufferError = -5;
  static constexpr int kNoFlush = 0, kFinish = 4;
  static constexpr int kWindowBits = 15, kGzip = 16, kAnyFormat = 32;  // to be added to the bits
  static constexpr int kDeflated = 8, kMemoryLevel = 8, kDefaultStrategy = 0;
  static constexpr const char* kVersion = "1.2.11";

  int (*inflate_init)(ZlibStream*, int window_bits, const char* version, int stream_size) = nullptr;
  int (*inflate)(ZlibStream*, int flush) = nullptr;
  int (*inflate_end)(ZlibStream*) = nullptr;
  int (*deflate_init)(ZlibStream*, int level, int method, int window_bits, int memory_level, int strategy,
                      const char* version, int stream_size) = nullptr;
  int (*deflate)(ZlibStream*, int flush) = nullptr;
  int (*deflate_end)(ZlibStream*) = nullptr;

  // nullptr if there is no zlib.
  static const Zlib* get();
};

}  // namespace pytriton::http
