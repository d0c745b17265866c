#include "request_parser.h"

#include <algorithm>
#include <cstring>

namespace pytriton::http {

namespace {

constexpr size_t kLongestTarget = 8 << 10;  // what the server and the application take, too
constexpr size_t kChunkRoom = 16 << 10;     // bytes to receive at once of a body of unknown length

bool is_target(std::string_view target, bool is_options) {
  if (target == "*") return is_options;
  if (target.empty() || target.front() != '/') return false;
  return std::all_of(target.begin(), target.end(), [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code > ' ' && code != 0x7f && code != '#';
  });
}

}  // namespace

const llhttp_settings_t* RequestParser::settings() {
  static const llhttp_settings_t settings = [] {
    llhttp_settings_t made;
    llhttp_settings_init(&made);
    made.on_url = [](llhttp_t* parser, const char* at, size_t size) {
      of(parser).extend(of(parser).target_, at, size);
      return 0;
    };
    made.on_method = [](llhttp_t* parser, const char* at, size_t size) {
      of(parser).extend(of(parser).method_, at, size);
      return 0;
    };
    made.on_protocol = [](llhttp_t* parser, const char* at, size_t size) {
      of(parser).extend(of(parser).protocol_, at, size);
      return 0;
    };
    made.on_header_field = [](llhttp_t* parser, const char* at, size_t size) { return of(parser).on_name(at, size); };
    made.on_header_value = [](llhttp_t* parser, const char* at, size_t size) {
      RequestParser& self = of(parser);
      if (self.stage_ != Stage::head) return self.count_overhead(size);
      self.extend(self.lines_.back().value, at, size);
      return 0;
    };
    made.on_header_value_complete = [](llhttp_t* parser) {
      of(parser).is_line_complete_ = true;
      return 0;
    };
    made.on_headers_complete = [](llhttp_t* parser) { return of(parser).on_head(); };
    made.on_body = [](llhttp_t* parser, const char* at, size_t size) { return of(parser).on_chunk_data(at, size); };
    made.on_chunk_header = [](llhttp_t* parser) { return of(parser).check_chunk(parser->content_length); };
    made.on_chunk_extension_name = [](llhttp_t* parser, const char*, size_t size) {
      return of(parser).count_overhead(size);
    };
    made.on_chunk_extension_value = made.on_chunk_extension_name;
    made.on_message_complete = [](llhttp_t*) -> int { return HPE_PAUSED; };
    return made;
  }();
  return &settings;
}

RequestParser::RequestParser(const Limits& limits) : limits_(limits) { reset(); }

void RequestParser::reset() {
  llhttp_init(&parser_, HTTP_REQUEST, settings());
  parser_.data = this;
  stage_ = Stage::head;
  parsed_ = body_ = end_ = overhead_ = 0;
  length_ = 0;
  most_body_ = limits_.max_body_bytes;
  method_ = target_ = protocol_ = {};
  lines_.clear();
  is_line_complete_ = true;
  is_chunked_ = expects_continue_ = keeps_alive_ = is_http_1_0_ = false;
  status_ = 0;
}

RequestParser::Progress RequestParser::parse(char* data, size_t& size) {
  data_ = data;
  if (status_) return Progress::failed;
  if (stage_ == Stage::head) {
    const Progress progress = parse_head(size);
    if (stage_ == Stage::head || progress == Progress::failed) return progress;
  }
  if (stage_ == Stage::chunked) return parse_chunks(size);
  end_ = body_ + length_;
  return size >= end_ ? Progress::complete : Progress::body;
}

size_t RequestParser::wanted(size_t size) const {
  if (stage_ == Stage::counted && end_ > size) return end_ - size;
  return stage_ == Stage::chunked ? kChunkRoom : 1;
}

void RequestParser::fill(Request& request, const char* data) const {
  request.method = llhttp_method_name(static_cast<llhttp_method_t>(parser_.method));
  request.target = target_.in(data);
  const size_t mark = request.target.find('?');
  request.path = request.target.substr(0, mark);
  request.query = mark == std::string_view::npos ? std::string_view() : request.target.substr(mark + 1);
  request.headers.resize(lines_.size());
  std::transform(lines_.begin(), lines_.end(), request.headers.begin(),
                 [&](const Line& line) { return Header{line.name.in(data), trimmed(line.value.in(data))}; });
  request.body = {data + body_, end_ - body_};
}

void RequestParser::extend(Span& span, const char* at, size_t size) const {
  if (span.size == 0) span.start = static_cast<size_t>(at - data_);
  span.size += size;
}

int RequestParser::on_name(const char* at, size_t size) {
  if (stage_ != Stage::head) return count_overhead(size);  // of a trailer, which is ignored
  if (is_line_complete_) {
    if (lines_.size() == limits_.max_headers) {
      fail(431, "the request has too many headers");
      return HPE_USER;
    }
    lines_.emplace_back();
    is_line_complete_ = false;
  }
  extend(lines_.back().name, at, size);
  return 0;
}

int RequestParser::count_overhead(size_t size) {
  overhead_ += size;
  if (overhead_ <= limits_.max_head_bytes) return 0;
  fail(431, "the extensions or trailers of the request's chunks are too long");
  return HPE_USER;
}

int RequestParser::on_head() {
  is_chunked_ = parser_.flags & F_CHUNKED;
  length_ = parser_.flags & F_CONTENT_LENGTH ? parser_.content_length : 0;
  keeps_alive_ = llhttp_should_keep_alive(&parser_);
  is_http_1_0_ = parser_.http_minor == 0;
  parser_.upgrade = 0;  // which no route offers: the request is answered as if it had not asked
  return HPE_PAUSED;
}

int RequestParser::check_chunk(uint64_t size) {
  const uint64_t before = end_ - body_;
  if (before <= most_body_ && size <= most_body_ - before) return 0;
  fail(413, "the request's body is too large");
  return HPE_USER;
}

int RequestParser::on_chunk_data(const char* at, size_t size) {
  std::memmove(data_ + end_, at, size);
  end_ += size;
  return 0;
}

RequestParser::Progress RequestParser::parse_head(size_t size) {
  const llhttp_errno_t error = llhttp_execute(&parser_, data_ + parsed_, size - parsed_);
  if (status_) return Progress::failed;
  if (error == HPE_OK) {
    parsed_ = size;
    if (size > limits_.max_head_bytes) return fail(431, "the request's head is too long");
    return Progress::head;
  }
  if (error == HPE_PAUSED_H2_UPGRADE) return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");  // as gRPC begins
  if (error != HPE_PAUSED) return fail(400, llhttp_get_error_reason(&parser_));
  parsed_ = body_ = end_ = static_cast<size_t>(llhttp_get_error_pos(&parser_) - data_);
  if (body_ > limits_.max_head_bytes) return fail(431, "the request's head is too long");
  if (!check_head()) return Progress::failed;
  stage_ = is_chunked_ ? Stage::chunked : Stage::counted;
  return Progress::body;
}

RequestParser::Progress RequestParser::parse_chunks(size_t& size) {
  if (llhttp_get_errno(&parser_) == HPE_PAUSED) llhttp_resume(&parser_);
  const llhttp_errno_t error = llhttp_execute(&parser_, data_ + parsed_, size - parsed_);
  if (status_) return Progress::failed;
  if (error != HPE_OK && error != HPE_PAUSED) return fail(400, llhttp_get_error_reason(&parser_));
  if (error == HPE_PAUSED) {  // the bytes that follow are the next request's
    const auto next = static_cast<size_t>(llhttp_get_error_pos(&parser_) - data_);
    std::memmove(data_ + end_, data_ + next, size - next);
    size -= next - end_;
    return Progress::complete;
  }
  size = parsed_ = end_;
  return Progress::body;
}

bool RequestParser::check_head() {
  const size_t after_method = method_.start + method_.size + 1, after_target = target_.start + target_.size + 1;
  if (protocol_.in(data_) != "HTTP" || target_.start != after_method || protocol_.start != after_target) {
    fail(400, "the request's first line is not a method, a target and a version, with one space between");
    return false;
  }
  if (parser_.http_major != 1 || parser_.http_minor > 1) {
    fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    return false;
  }
  if (target_.size > kLongestTarget) {
    fail(414, "the request's target is too long");
    return false;
  }
  if (!is_target(target_.in(data_), parser_.method == HTTP_OPTIONS)) {
    fail(400, "the request's target is not a path");
    return false;
  }
  unsigned hosts = 0, encodings = 0;
  for (const Line& line : lines_) {
    const std::string_view name = line.name.in(data_), value = trimmed(line.value.in(data_));
    if (equals_ignoring_case(name, "host") && ++hosts > 1) {
      fail(400, "the request has two Host headers");
    } else if (equals_ignoring_case(name, "transfer-encoding")) {
      if (++encodings > 1 || is_http_1_0_ || !equals_ignoring_case(value, "chunked"))
        fail(400, "the request has a Transfer-Encoding other than chunked");
    } else if (equals_ignoring_case(name, "expect")) {
      if (!equals_ignoring_case(value, "100-continue")) fail(417, "the request has an unknown expectation");
      expects_continue_ = !is_http_1_0_;
    }
    if (status_) return false;
  }
  if (hosts == 0 && !is_http_1_0_) {
    fail(400, "the request has no Host header");
    return false;
  }
  if (length_ > limits_.max_body_bytes) {
    fail(413, "the request's body is too large");
    return false;
  }
  return true;
}

RequestParser::Progress RequestParser::fail(int status, const char* reason) {
  status_ = status;
  reason_ = reason ? reason : "";
  return Progress::failed;
}

}  // namespace pytriton::http
