// Reads the answers of a process behind the edge, by llhttp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../vendor/llhttp/include/llhttp.h"

namespace pytriton::http {

class ResponseParser {
 public:
  explicit ResponseParser(bool is_head);  // the request was HEAD: there is no body
  ResponseParser(const ResponseParser&) = delete;
  ResponseParser& operator=(const ResponseParser&) = delete;

  bool parse(const char* data, size_t size);  // false: this is no answer
  bool finish();                              // the connection has ended; false: in the middle

  bool has_head() const { return has_head_; }
  bool is_complete() const { return is_complete_; }
  bool keeps_alive() const { return keeps_alive_; }
  int status() const { return status_; }
  int64_t content_length() const { return content_length_; }  // -1: unknown
  std::string headers() const;                                // lines, without those that are of the connection

  std::string body;  // what has come of it

 private:
  struct Line {
    std::string name, value;
  };
  static const llhttp_settings_t* settings();
  static ResponseParser& of(llhttp_t* parser) { return *static_cast<ResponseParser*>(parser->data); }
  int append(bool is_name, const char* at, size_t size);
  int on_head();
  int on_end();

  llhttp_t parser_{};
  const bool is_head_;
  bool has_head_ = false, is_complete_ = false, keeps_alive_ = false, is_value_ = true;
  int status_ = 0;
  int64_t content_length_ = -1;
  size_t head_bytes_ = 0;
  std::vector<Line> lines_;
};

}  // namespace pytriton::http
