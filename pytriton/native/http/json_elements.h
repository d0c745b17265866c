// Elements of tensors as JSON: from a request's text to memory, and from memory to an answer's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// Reads a value that nobody needs. Throws Failure if it is malformed, or deeper than that many levels.
void skip(JsonValue value, unsigned levels);

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

// Appends one element, without the brackets; `data` advances.
void append_element(std::string& text, TRITONSERVER_DataType dtype, std::string_view& data);

void append_integer(std::string& text, int64_t number);
void append_integer(std::string& text, uint64_t number);
void append_number(std::string& text, double number);

// Product of the extents. Throws Failure with the input's name unless as many elements have less than 2^63 bytes.
uint64_t count_elements(const std::vector<int64_t>& shape, TRITONSERVER_DataType dtype, std::string_view input);

}  // namespace pytriton::http
