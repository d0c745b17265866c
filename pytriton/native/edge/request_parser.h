// Reads requests: heads by llhttp, bodies by their length or as chunks. Input and output are its caller's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "../vendor/llhttp/include/llhttp.h"
#include "exchange.h"

namespace pytriton::http {

struct Limits {
  size_t max_head_bytes = 64 << 10;
  size_t max_headers = 256;
  uint64_t max_body_bytes = uint64_t{2} << 30;
};

// One request. Strict: whatever another program could read as more or fewer requests is refused.
class RequestParser {
 public:
  enum class Progress { head, body, complete, failed };  // the first two: more bytes are needed

  explicit RequestParser(const Limits& limits);
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  void reset();

  // Reads on in data[0, size), of which earlier calls have seen the beginning; the bytes may have moved to another
  // address. Takes the framing of chunks out of the data, so that `size` shrinks.
  Progress parse(char* data, size_t& size);

  // The most bytes of this request's body, instead of the limit of all.
  void set_most_body(uint64_t most) { most_body_ = most; }

  // How many bytes the buffer should have room for, beside `size`, to read on.
  size_t wanted(size_t size) const;

  bool has_head() const { return stage_ != Stage::head; }

  // Of a head that has been read.
  bool expects_continue() const { return expects_continue_; }
  bool keeps_alive() const { return keeps_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }
  uint64_t announced() const { return is_chunked_ ? end_ - body_ : length_; }  // of its body: what is known by now
  size_t body_start() const { return body_; }

  // Of a complete request: where the next one begins, and its parts as views.
  size_t end() const { return end_; }
  void fill(Request& request, const char* data) const;

  // Of a request that is refused.
  int status() const { return status_; }
  const char* reason() const { return reason_; }

 private:
  struct Span {
    size_t start = 0, size = 0;
    std::string_view in(const char* data) const { return {data + start, size}; }
  };
  struct Line {
    Span name, value;
  };
  enum class Stage { head, counted, chunked };

  static const llhttp_settings_t* settings();
  static RequestParser& of(llhttp_t* parser) { return *static_cast<RequestParser*>(parser->data); }
  void extend(Span& span, const char* at, size_t size) const;
  int on_name(const char* at, size_t size);
  int on_head();
  int check_chunk(uint64_t size);
  int on_chunk_data(const char* at, size_t size);
  int count_overhead(size_t size);
  Progress parse_head(size_t size);
  Progress parse_chunks(size_t& size);
  bool check_head();
  Progress fail(int status, const char* reason);

  const Limits& limits_;
  llhttp_t parser_{};
  char* data_ = nullptr;  // during a call
  Stage stage_ = Stage::head;
  size_t parsed_ = 0, body_ = 0, end_ = 0;  // offsets
  size_t overhead_ = 0;                     // bytes of extensions and trailers
  uint64_t length_ = 0, most_body_ = 0;
  Span method_, target_, protocol_;
  std::vector<Line> lines_;
  bool is_line_complete_ = true, is_chunked_ = false;
  bool expects_continue_ = false, keeps_alive_ = false, is_http_1_0_ = false;
  int status_ = 0;
  const char* reason_ = "";
};

}  // namespace pytriton::http
