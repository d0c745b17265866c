// Elements of tensors as JSON: from a request's text to memory, and from memory to an answer's text.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "../vendor/simdjson/simdjson.h"
#include "dtypes.h"
#include "inference.h"

namespace pytriton::http {

using JsonValue = simdjson::ondemand::value;

// A parser for one document at a time, which the thread keeps. Large ones are not kept.
class JsonParser {
 public:
  JsonParser();
  ~JsonParser();
  JsonParser(const JsonParser&) = delete;
  JsonParser& operator=(const JsonParser&) = delete;

  // The text is followed by kPadding readable bytes. It may turn out later not to be JSON.
  simdjson::simdjson_result<simdjson::ondemand::document> begin(std::string_view text);
  simdjson::ondemand::document parse(std::string_view text);  // throws Failure

 private:
  simdjson::ondemand::parser& parser_;  // the thread's
};

[[noreturn]] void fail_syntax(simdjson::error_code error);  // throws Failure

// The value of a result. Throws Failure if the JSON is malformed.
template <typename Value>
Value checked(simdjson::simdjson_result<Value> result) {
  Value value;
  if (const auto error = std::move(result).get(value)) fail_syntax(error);
  return value;
}

// The members of a document, or of a value. Throws Failure if it is no object.
template <typename Json>
simdjson::ondemand::object members_of(Json&& json) {
  simdjson::ondemand::object members;
  if (const auto error = json.get_object().get(members)) {
    if (error != simdjson::INCORRECT_TYPE) fail_syntax(error);
    throw Failure(Code::invalid_argument, "attempt to get members for non-object");
  }
  return members;
}

// Throws Failure if more follows a document that has been read.
inline void check_end(simdjson::ondemand::document& document) {
  if (!document.at_end()) fail_syntax(simdjson::TRAILING_CONTENT);
}

// Reserves what it takes to read a large text: the parser's index, its texts, and the arrays. Throws Failure if there
// is no memory.
Charge reserve_reading(Exchange& exchange, std::string_view text);
uint64_t reading_bytes(std::string_view text);  // how much that is

// Answers an exchange on another thread, as its body begins with so many bytes of JSON that reading them takes long.
// What is thrown is the answer.
void answer_in_background(Exchange& exchange, size_t json_bytes, std::function<void(Exchange&)> answer);

// Reads a value that nobody needs. Throws Failure if it is malformed, or deeper than that many levels.
void skip(JsonValue value, unsigned levels);

// Memory that grows as elements come, so that no more is taken than for what was sent.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(size_t capacity) : memory_(allocate(capacity)), capacity_(capacity) {}

  template <typename Item>
  void append(Item item) {
    if (capacity_ - size_ < sizeof item) grow(sizeof item);
    std::memcpy(memory_.get() + size_, &item, sizeof item);
    size_ += sizeof item;
  }
  void append(const void* data, size_t size);
  void append_string(std::string_view text);  // as the server has the elements of BYTES

  const char* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  Memory take() { return memory_ ? std::move(memory_) : allocate(0); }

 private:
  void grow(size_t more);

  Memory memory_;
  size_t size_ = 0, capacity_ = 0;
};

// The type that a number of JSON is read as, which becomes an Item if it fits.
template <typename Item>
using Wide = std::conditional_t<std::is_same_v<Item, bool>, bool,
                                std::conditional_t<std::is_floating_point_v<Item>, double,
                                                   std::conditional_t<std::is_signed_v<Item>, int64_t, uint64_t>>>;

// False if the value is nothing of the kind: true or false, an integer, or a number of JSON.
inline bool read_number(JsonValue& value, bool& number) { return !value.get_bool().get(number); }
inline bool read_number(JsonValue& value, int64_t& number) { return !value.get_int64().get(number); }
inline bool read_number(JsonValue& value, uint64_t& number) { return !value.get_uint64().get(number); }
inline bool read_number(JsonValue& value, double& number) { return !value.get_double().get(number); }

template <typename Item>
bool fits(Wide<Item> number) {
  if constexpr (std::is_floating_point_v<Item>) {
    return !std::isfinite(number) || std::isfinite(static_cast<Item>(number));
  } else {
    return number >= std::numeric_limits<Item>::lowest() && number <= std::numeric_limits<Item>::max();
  }
}

struct Elements {
  Memory data;
  size_t size = 0;  // bytes
  uint64_t count = 0;
};

constexpr uint64_t kAnyCount = UINT64_MAX;

// Reads an element, or `count` elements out of a list, which may have lists in it, whatever their lengths. A count is
// at most `most`: no text has more elements than bytes. Integers are exact, and each number has to fit the dtype; NaN
// and Infinity may be elements of FP32 and FP64. Strings become BYTES as the server has them.
//
// Throws Failure that begins with "Unable to parse", as Triton's own do.
Elements read_elements(JsonValue value, TRITONSERVER_DataType dtype, uint64_t count, size_t most, unsigned levels);

// Appends a list of a tensor's elements. Numbers have the fewest digits that give them again; NaN and infinities are
// written as NaN and Infinity. Throws Failure if the dtype has no JSON, if the size is not that of `count` elements, or
// if a string is not UTF-8.
void append_elements(std::string& text, TRITONSERVER_DataType dtype, const char* data, size_t size, uint64_t count);

// Appends numbers with commas between them, which are in memory.
enum class NonFinite { bare, quoted };  // NaN and infinities: as Python's json module writes them, or as strings
void append_numbers(std::string& text, TRITONSERVER_DataType dtype, const char* data, uint64_t count,
                    NonFinite non_finite);

// Appends one element, without the brackets; `data` advances.
void append_element(std::string& text, TRITONSERVER_DataType dtype, std::string_view& data);

void append_integer(std::string& text, int64_t number);
void append_integer(std::string& text, uint64_t number);
void append_number(std::string& text, double number);

// Product of the extents. Throws Failure with the input's name unless as many elements have less than 2^63 bytes.
uint64_t count_elements(const std::vector<int64_t>& shape, TRITONSERVER_DataType dtype, std::string_view input);

}  // namespace pytriton::http
