// JSON: enough to read the server's configurations, our own files and a worker's messages, which may be wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pytriton {

class Json {
 public:
  enum class Kind { null, boolean, number, text, list, object };

  // Throws FrameError unless the whole text is one value, at most 64 levels deep.
  static Json parse(std::string_view text);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }

  // Each throws FrameError if the value is of another kind, or the number has no place in the type.
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  const std::string& text() const;
  const std::vector<Json>& list() const;
  const std::map<std::string, Json, std::less<>>& object() const;

  const Json* find(std::string_view key) const;        // null if absent, or this is no object
  const Json& operator[](std::string_view key) const;  // throws FrameError if absent

 private:
  friend class JsonReader;
  void expect(Kind kind) const;

  Kind kind_ = Kind::null;
  bool boolean_ = false;
  double number_ = 0;
  std::string text_;
  std::vector<Json> list_;
  std::map<std::string, Json, std::less<>> object_;
};

// The text as a JSON string, with its quotes; the text must be UTF-8.
void append_json(std::string& out, std::string_view text);

void append_base64(std::string& out, std::string_view bytes);  // without quotes

bool is_utf8(std::string_view text);

}  // namespace pytriton
