#include "json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "failure.h"

namespace pytriton {

namespace {
constexpr int kMaxLevels = 64;

void append_utf8(std::string& out, uint32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | point >> 6);
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | point >> 12);
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | point >> 18);
    out += static_cast<char>(0x80 | (point >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}
}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json whole() {
    Json value = read(0);
    skip_space();
    if (at_ != text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const { throw FrameError("no JSON from byte " + std::to_string(at_)); }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  char peek() {
    skip_space();
    if (at_ == text_.size()) fail();
    return text_[at_];
  }

  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void need(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) fail();
    at_ += word.size();
  }

  Json read(int level) {
    if (level > kMaxLevels) fail();
    Json value;
    switch (peek()) {
      case '{':
        value.kind_ = Json::Kind::object;
        read_object(value, level);
        break;
      case '[':
        value.kind_ = Json::Kind::list;
        read_list(value, level);
        break;
      case '"':
        value.kind_ = Json::Kind::text;
        value.text_ = read_text();
        break;
      case 't':
        need("true");
        value.kind_ = Json::Kind::boolean;
        value.boolean_ = true;
        break;
      case 'f':
        need("false");
        value.kind_ = Json::Kind::boolean;
        break;
      case 'n':
        need("null");
        break;
      default:
        value.kind_ = Json::Kind::number;
        value.number_ = read_number();
    }
    return value;
  }

  void read_object(Json& value, int level) {
    ++at_;
    if (take('}')) return;
    do {
      if (peek() != '"') fail();
      std::string key = read_text();
      if (!take(':')) fail();
      value.object_.insert_or_assign(std::move(key), read(level + 1));
    } while (take(','));
    if (!take('}')) fail();
  }

  void read_list(Json& value, int level) {
    ++at_;
    if (take(']')) return;
    do value.list_.push_back(read(level + 1));
    while (take(','));
    if (!take(']')) fail();
  }

  double read_number() {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    double number = 0;  // not by strtod(), which expects the decimal point of the process's locale
    const auto read = std::from_chars(text_.data() + at_, text_.data() + end, number);
    if (read.ec != std::errc() || read.ptr != text_.data() + end) fail();
    at_ = end;
    return number;
  }

  std::string read_text() {
    std::string text;
    for (++at_; at_ < text_.size(); ++at_) {
      const char each = text_[at_];
      if (each == '"') {
        ++at_;
        return text;
      }
      if (each == '\\') {
        read_escape(text);
      } else {
        text += each;
      }
    }
    fail();
  }

  void read_escape(std::string& text) {
    static constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (++at_ == text_.size()) fail();
    const size_t found = names.find(text_[at_]);
    if (found != std::string_view::npos) {
      text += meanings[found];
      return;
    }
    uint32_t point = read_unit();
    if (point >= 0xD800 && point < 0xDC00 && text_.substr(at_ + 1, 2) == "\\u") {
      at_ += 2;
      const uint32_t low = read_unit();
      if (low < 0xDC00 || low > 0xDFFF) fail();
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(text, point >= 0xD800 && point < 0xE000 ? 0xFFFD : point);
  }

  uint32_t read_unit() {  // at the "u"; afterwards at the last digit
    if (text_[at_] != 'u' || text_.size() - at_ < 5) fail();
    uint32_t unit = 0;
    for (int digit = 0; digit < 4; ++digit) {
      const char each = text_[++at_];
      const int value = each >= '0' && each <= '9'   ? each - '0'
                        : each >= 'a' && each <= 'f' ? each - 'a' + 10
                        : each >= 'A' && each <= 'F' ? each - 'A' + 10
                                                     : -1;
      if (value < 0) fail();
      unit = unit << 4 | static_cast<uint32_t>(value);
    }
    return unit;
  }

  std::string_view text_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).whole(); }

void Json::expect(Kind kind) const {
  if (kind_ != kind) throw FrameError("a JSON value is of another kind than expected");
}

bool Json::boolean() const {
  expect(Kind::boolean);
  return boolean_;
}

int64_t Json::integer() const {
  if (is(Kind::text)) return std::strtoll(text_.c_str(), nullptr, 10);  // as protobuf writes 64 bits
  expect(Kind::number);
  if (!(std::abs(number_) < 9e18) || number_ != std::floor(number_)) throw FrameError("a JSON number is no integer");
  return static_cast<int64_t>(number_);
}

double Json::number() const {
  expect(Kind::number);
  return number_;
}

const std::string& Json::text() const {
  expect(Kind::text);
  return text_;
}

const std::vector<Json>& Json::list() const {
  expect(Kind::list);
  return list_;
}

const std::map<std::string, Json, std::less<>>& Json::object() const {
  expect(Kind::object);
  return object_;
}

const Json* Json::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &found->second;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  if (!found) throw FrameError("a JSON object has no " + std::string(key));
  return *found;
}

void append_json(std::string& out, std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  static constexpr std::string_view known = "\b\f\n\r\t\"\\", names = "bfnrt\"\\";
  out += '"';
  size_t start = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, start, at - start);
    start = at + 1;
    if (const size_t found = known.find(text[at]); found != std::string_view::npos) {
      out.append({'\\', names[found]});
    } else {
      out.append({'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]});
    }
  }
  out.append(text, start).append(1, '"');
}

void append_base64(std::string& out, std::string_view bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t start = 0; start < bytes.size(); start += 3) {
    const size_t count = std::min<size_t>(bytes.size() - start, 3);
    uint32_t bits = 0;
    for (size_t index = 0; index < 3; ++index)
      bits = bits << 8U | (index < count ? static_cast<unsigned char>(bytes[start + index]) : 0U);
    for (size_t index = 0; index < 4; ++index) out += index <= count ? kDigits[bits >> (18 - 6 * index) & 0x3FU] : '=';
  }
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    while (text.size() - at >= sizeof eight) {  // most text is ASCII
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if (eight & 0x8080808080808080) break;
      at += sizeof eight;
    }
    if (at == text.size()) return true;
    const auto first = static_cast<unsigned char>(text[at]);
    const int more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : first >> 3 == 30 ? 3 : -1;
    if (more < 0 || text.size() - at <= static_cast<size_t>(more)) return false;
    uint32_t point = more == 0 ? first : first & (0x3F >> more);
    for (int index = 1; index <= more; ++index) {
      const auto next = static_cast<unsigned char>(text[at + index]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3F);
    }
    static constexpr uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (point < least[more] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    at += 1 + static_cast<size_t>(more);
  }
  return true;
}

}  // namespace pytriton
