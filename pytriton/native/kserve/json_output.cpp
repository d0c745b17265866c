// JSON of answers: the elements of tensors.
#include <cmath>
#include <cstring>

#include "../frames/json.h"
#include "json_elements.h"
#include "json_numbers.h"

namespace pytriton::http {

namespace {

template <typename Number>
char* print(char* at, Number number, NonFinite non_finite) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      const std::string_view quote = non_finite == NonFinite::quoted ? "\"" : "";
      at = print_text(at, quote);
      at = print_text(at, std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
      return print_text(at, quote);
    }
  }
  return print_number(at, number);
}

template <typename Number>
Number number_at(const char* data) {
  Number number;
  if constexpr (std::is_same_v<Number, bool>) {
    number = *data != 0;
  } else {
    std::memcpy(&number, data, sizeof number);
  }
  return number;
}

template <typename Number>
void append_one(std::string& text, Number number) {
  char digits[kLongestNumber];
  text.append(digits, static_cast<size_t>(print(digits, number, NonFinite::bare) - digits));
}

template <typename Number>
void append_numbers_of(std::string& text, const char* data, uint64_t count, NonFinite non_finite) {
  char block[4096];
  char* at = block;
  for (uint64_t index = 0; index < count; ++index) {
    if (block + sizeof block - at < static_cast<ptrdiff_t>(kLongestNumber + 1)) {
      text.append(block, static_cast<size_t>(at - block));
      at = block;
    }
    if (index) *at++ = ',';
    at = print(at, number_at<Number>(data + index * sizeof(Number)), non_finite);
  }
  text.append(block, static_cast<size_t>(at - block));
}

void append_string(std::string& text, std::string_view& data) {
  uint32_t length = 0;
  if (data.size() < kLengthBytes) throw Failure(Code::internal, "an output of strings is incomplete");
  std::memcpy(&length, data.data(), kLengthBytes);
  data.remove_prefix(kLengthBytes);
  if (data.size() < length) throw Failure(Code::internal, "an output of strings is incomplete");
  const std::string_view string = data.substr(0, length);
  if (!is_utf8(string)) {
    throw Failure(Code::invalid_argument,
                  "an output has a string that is not UTF-8, which JSON cannot hold; ask for binary data");
  }
  append_json(text, string);
  data.remove_prefix(length);
}

// Calls `visit` with a value of the type of a dtype's elements.
template <typename Visit>
void visit_number(TRITONSERVER_DataType type, const Visit& visit) {
  if (visit_dtype(type, visit)) return;
  throw Failure(Code::invalid_argument,
                std::string("sending ") + TRITONSERVER_DataTypeString(type) +
                    " data via JSON is not supported. Please use the binary data format for output");
}

}  // namespace

void append_integer(std::string& text, int64_t number) { append_one(text, number); }
void append_integer(std::string& text, uint64_t number) { append_one(text, number); }
void append_number(std::string& text, double number) { append_one(text, number); }

void append_numbers(std::string& text, TRITONSERVER_DataType type, const char* data, uint64_t count,
                    NonFinite non_finite) {
  visit_number(type, [&](auto kind) { append_numbers_of<decltype(kind)>(text, data, count, non_finite); });
}

void append_element(std::string& text, TRITONSERVER_DataType type, std::string_view& data) {
  if (type == dtype::kBytes) return append_string(text, data);
  visit_number(type, [&](auto kind) {
    using Number = decltype(kind);
    if (data.size() < sizeof(Number)) throw Failure(Code::internal, "an output is incomplete");
    append_one(text, number_at<Number>(data.data()));
    data.remove_prefix(sizeof(Number));
  });
}

void append_elements(std::string& text, TRITONSERVER_DataType type, const char* data, size_t size, uint64_t count) {
  text += '[';
  if (type == dtype::kBytes) {
    std::string_view rest(data, size);
    for (uint64_t index = 0; index < count; ++index) {
      if (index) text += ',';
      append_string(text, rest);
    }
    if (!rest.empty()) throw Failure(Code::internal, "an output of strings has more than its elements");
  } else {
    visit_number(type, [&](auto kind) {
      using Number = decltype(kind);
      if (count > size / sizeof(Number) || count * sizeof(Number) != size)
        throw Failure(Code::internal, "an output does not have the size of its elements");
      append_numbers_of<Number>(text, data, count, NonFinite::bare);
    });
  }
  text += ']';
}

}  // namespace pytriton::http
