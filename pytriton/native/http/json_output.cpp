// JSON of answers: the elements of tensors.
#include <charconv>
#include <cmath>
#include <cstring>

#include "../json.h"
#include "json_elements.h"

namespace pytriton::http {

namespace {

constexpr size_t kLongestNumber = 32;  // characters

template <typename Number>
char* print(char* at, Number number) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      const std::string_view name = std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
      return std::copy(name.begin(), name.end(), at);
    }
    char* end = std::to_chars(at, at + kLongestNumber, number).ptr;
    // 2 is an integer for most readers.
    if (std::find_if(at, end, [](char each) { return each == '.' || each == 'e'; }) != end) return end;
    *end++ = '.';
    *end++ = '0';
    return end;
  } else if constexpr (std::is_same_v<Number, bool>) {
    const std::string_view name = number ? "true" : "false";
    return std::copy(name.begin(), name.end(), at);
  } else {
    return std::to_chars(at, at + kLongestNumber, number).ptr;
  }
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
  char digits[kLongestNumber + 2];
  text.append(digits, static_cast<size_t>(print(digits, number) - digits));
}

template <typename Number>
void append_numbers(std::string& text, const char* data, uint64_t count) {
  char block[4096];
  char* at = block;
  for (uint64_t index = 0; index < count; ++index) {
    if (block + sizeof block - at < static_cast<ptrdiff_t>(kLongestNumber + 4)) {
      text.append(block, static_cast<size_t>(at - block));
      at = block;
    }
    if (index) *at++ = ',';
    at = print(at, number_at<Number>(data + index * sizeof(Number)));
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
void visit_dtype(TRITONSERVER_DataType type, const Visit& visit) {
  switch (type) {
    case dtype::kBool:
      return visit(bool{});
    case dtype::kUint8:
      return visit(uint8_t{});
    case dtype::kUint16:
      return visit(uint16_t{});
    case dtype::kUint32:
      return visit(uint32_t{});
    case dtype::kUint64:
      return visit(uint64_t{});
    case dtype::kInt8:
      return visit(int8_t{});
    case dtype::kInt16:
      return visit(int16_t{});
    case dtype::kInt32:
      return visit(int32_t{});
    case dtype::kInt64:
      return visit(int64_t{});
    case dtype::kFp32:
      return visit(float{});
    case dtype::kFp64:
      return visit(double{});
    default:
      throw Failure(Code::invalid_argument,
                    std::string("sending ") + TRITONSERVER_DataTypeString(type) +
                        " data via JSON is not supported. Please use the binary data format for output");
  }
}

}  // namespace

void append_integer(std::string& text, int64_t number) { append_one(text, number); }
void append_integer(std::string& text, uint64_t number) { append_one(text, number); }
void append_number(std::string& text, double number) { append_one(text, number); }

void append_element(std::string& text, TRITONSERVER_DataType type, std::string_view& data) {
  if (type == dtype::kBytes) return append_string(text, data);
  visit_dtype(type, [&](auto kind) {
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
    visit_dtype(type, [&](auto kind) {
      using Number = decltype(kind);
      if (count > size / sizeof(Number) || count * sizeof(Number) != size)
        throw Failure(Code::internal, "an output does not have the size of its elements");
      append_numbers<Number>(text, data, count);
    });
  }
  text += ']';
}

}  // namespace pytriton::http
