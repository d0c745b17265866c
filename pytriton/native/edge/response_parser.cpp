#include "response_parser.h"

#include <algorithm>

#include "request_parser.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostHeadBytes = 256 << 10;

}  // namespace

const llhttp_settings_t* ResponseParser::settings() {
  static const llhttp_settings_t settings = [] {
    llhttp_settings_t made;
    llhttp_settings_init(&made);
    made.on_header_field = [](llhttp_t* parser, const char* at, size_t size) {
      return of(parser).append(true, at, size);
    };
    made.on_header_value = [](llhttp_t* parser, const char* at, size_t size) {
      return of(parser).append(false, at, size);
    };
    made.on_header_value_complete = [](llhttp_t* parser) {
      of(parser).is_value_ = true;
      return 0;
    };
    made.on_headers_complete = [](llhttp_t* parser) { return of(parser).on_head(); };
    made.on_body = [](llhttp_t* parser, const char* at, size_t size) {
      of(parser).body.append(at, size);
      return 0;
    };
    made.on_message_complete = [](llhttp_t* parser) { return of(parser).on_end(); };
    return made;
  }();
  return &settings;
}

ResponseParser::ResponseParser(bool is_head) : is_head_(is_head) {
  llhttp_init(&parser_, HTTP_RESPONSE, settings());
  parser_.data = this;
}

bool ResponseParser::parse(const char* data, size_t size) {
  const llhttp_errno_t error = llhttp_execute(&parser_, data, size);
  if (error == HPE_PAUSED && is_complete_) {
    if (llhttp_get_error_pos(&parser_) != data + size) keeps_alive_ = false;
    return true;
  }
  return error == HPE_OK;
}

bool ResponseParser::finish() {
  if (is_complete_) return true;
  keeps_alive_ = false;
  const llhttp_errno_t error = llhttp_finish(&parser_);
  return (error == HPE_OK || error == HPE_PAUSED) && is_complete_;
}

int ResponseParser::append(bool is_name, const char* at, size_t size) {
  head_bytes_ += size;
  if (head_bytes_ > kMostHeadBytes) return HPE_USER;
  if (has_head_) return 0;  // a trailer
  if (is_name && is_value_) {
    lines_.emplace_back();
    is_value_ = false;
  }
  (is_name ? lines_.back().name : lines_.back().value).append(at, size);
  return 0;
}

int ResponseParser::on_head() {
  status_ = parser_.status_code;
  if (status_ == 101) return -1;  // nobody has asked to speak another protocol
  if (status_ < 200) return 0;
  has_head_ = true;
  if (parser_.flags & F_CONTENT_LENGTH) content_length_ = static_cast<int64_t>(parser_.content_length);
  keeps_alive_ = llhttp_should_keep_alive(&parser_);
  parser_.upgrade = 0;
  return is_head_ ? 1 : 0;
}

int ResponseParser::on_end() {
  if (status_ < 200) {
    lines_.clear();
    return 0;
  }
  is_complete_ = true;
  return HPE_PAUSED;
}

std::string ResponseParser::headers() const {
  std::string named;  // by Connection, in lower case, with commas around
  for (const Line& line : lines_)
    if (equals_ignoring_case(line.name, "connection")) named += ',' + line.value;
  named.erase(std::remove_if(named.begin(), named.end(), [](char letter) { return letter == ' ' || letter == '\t'; }),
              named.end());
  named = in_lower_case(named) + ',';
  std::string headers;
  for (const Line& line : lines_) {
    const std::string name = in_lower_case(line.name);
    if (is_hop_by_hop(name) || name == "content-length" || named.find(',' + name + ',') != std::string::npos) continue;
    headers += line.name;
    headers += ": ";
    headers += line.value;
    headers += "\r\n";
  }
  return headers;
}

}  // namespace pytriton::http
