// JSON of requests: the parser, and the elements of tensors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../edge/background.h"
#include "../edge/error_response.h"
#include "json_elements.h"

namespace pytriton::http {

namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::json_type;

constexpr size_t kKeptCapacity = 1 << 20;  // bytes of a text whose parser is kept

[[noreturn]] void fail_data(const std::string& reason) {
  throw Failure(Code::invalid_argument, "Unable to parse 'data': " + reason);
}

[[noreturn]] void fail_shape() { fail_data("Shape does not match true shape of 'data' field"); }

template <typename Number>
constexpr const char* kWrongType = "attempt to access JSON non-number as double";
template <>
constexpr const char* kWrongType<bool> = "attempt to access JSON non-boolean as boolean";
template <>
constexpr const char* kWrongType<int64_t> = "attempt to access JSON non-signed-integer as signed-integer";
template <>
constexpr const char* kWrongType<uint64_t> = "attempt to access JSON non-unsigned-integer as unsigned-integer";

// JSON itself has no such numbers, but Python's json module writes and reads them, as Triton does.
bool read_non_finite(JsonValue& value, double& number) {
  std::string_view token = value.raw_json_token();
  token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
  const bool is_negative = !token.empty() && token.front() == '-';
  if (is_negative) token.remove_prefix(1);
  if (token == "NaN") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else if (token == "Infinity" || token == "Inf") {
    number = std::numeric_limits<double>::infinity();
  } else {
    return false;
  }
  if (is_negative) number = -number;
  return true;
}

bool read_any_number(JsonValue& value, double& number) {
  return read_number(value, number) || read_non_finite(value, number);
}
template <typename Number>
bool read_any_number(JsonValue& value, Number& number) {
  return read_number(value, number);
}

template <typename Item>
Item narrowed(Wide<Item> number) {
  if (fits<Item>(number)) return static_cast<Item>(number);
  if constexpr (std::is_floating_point_v<Item>) {
    fail_data("a number is too large for FP32");
  } else {
    using Limits = std::numeric_limits<Item>;
    fail_data(std::to_string(number) + " is not in the range from " + std::to_string(Limits::lowest()) + " to " +
              std::to_string(Limits::max()));
  }
}

// An element, or a list, which may have lists in it; `read` gets each element.
template <typename Read>
void each_element(JsonValue value, unsigned levels, Read& read) {
  if (read(value)) return;
  array list;
  if (value.get_array().get(list)) return read.fail();
  if (!levels) fail_data("lists are nested too deeply");
  for (auto each : list) each_element(checked<JsonValue>(each), levels - 1, read);
}

// The elements of a tensor, of which there may be a certain number.
class ElementsReader {
 public:
  ElementsReader(uint64_t count, Bytes&& bytes) : bytes_(std::move(bytes)), count_(count) {}

  Elements elements() {
    if (count_ != kAnyCount && size_ != count_) fail_shape();
    const size_t bytes = bytes_.size();
    return {bytes_.take(), bytes, size_};
  }

 protected:
  void count_one() {
    if (size_++ == count_) fail_shape();
  }

  Bytes bytes_;

 private:
  const uint64_t count_;
  uint64_t size_ = 0;
};

template <typename Item>
class NumberReader : public ElementsReader {
 public:
  explicit NumberReader(uint64_t count) : ElementsReader(count, Bytes(bytes_for(count))) {}

  bool operator()(JsonValue& value) {
    Wide<Item> number{};
    if (!read_any_number(value, number)) return false;
    count_one();
    bytes_.append(narrowed<Item>(number));
    return true;
  }
  static void fail() { fail_data(kWrongType<Wide<Item>>); }

 private:
  static size_t bytes_for(uint64_t count) {
    if (count == kAnyCount) return 0;
    if (count > SIZE_MAX / 2 / sizeof(Item)) fail_shape();
    return count * sizeof(Item);
  }
};

class StringReader : public ElementsReader {
 public:
  explicit StringReader(uint64_t count) : ElementsReader(count, {}) {}

  bool operator()(JsonValue& value) {
    std::string_view text;
    if (value.get_string().get(text)) return false;
    count_one();
    bytes_.append_string(text);
    return true;
  }
  static void fail() {
    throw Failure(Code::invalid_argument,
                  "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
  }
};

simdjson::ondemand::parser& thread_parser() {
  thread_local simdjson::ondemand::parser parser;
  return parser;
}

template <typename Reader>
Elements read_with(Reader reader, JsonValue value, unsigned levels) {
  each_element(value, levels, reader);
  return reader.elements();
}

}  // namespace

void Bytes::append(const void* data, size_t size) {
  if (capacity_ - size_ < size) grow(size);
  if (size) std::memcpy(memory_.get() + size_, data, size);
  size_ += size;
}

void Bytes::append_string(std::string_view text) {
  append(static_cast<uint32_t>(text.size()));  // a document has less than 4 GiB
  append(text.data(), text.size());
}

// realloc() moves pages of large memory, and copies nothing.
void Bytes::grow(size_t more) {
  constexpr size_t kFirstCapacity = 64;
  const size_t capacity = std::max({kFirstCapacity, capacity_ + capacity_ / 2, size_ + more});
  char* const larger = static_cast<char*>(std::realloc(memory_.get(), capacity));
  if (!larger) throw Failure(Code::unavailable, "no memory for " + std::to_string(capacity) + " bytes");
  static_cast<void>(memory_.release());
  memory_.reset(larger);
  capacity_ = capacity;
}

JsonParser::JsonParser() : parser_(thread_parser()) {}

JsonParser::~JsonParser() {
  if (parser_.capacity() > kKeptCapacity) parser_ = simdjson::ondemand::parser();
}

simdjson::simdjson_result<simdjson::ondemand::document> JsonParser::begin(std::string_view text) {
  static_assert(kPadding >= simdjson::SIMDJSON_PADDING);
  return parser_.iterate(text.data(), text.size(), text.size() + kPadding);
}

simdjson::ondemand::document JsonParser::parse(std::string_view text) { return checked(begin(text)); }

void fail_syntax(simdjson::error_code error) {
  if (error == simdjson::MEMALLOC) throw Failure(Code::unavailable, "no memory for the request's JSON");
  throw Failure(Code::invalid_argument,
                std::string("failed to parse the request JSON buffer: ") + simdjson::error_message(error));
}

uint64_t reading_bytes(std::string_view text) {
  // Between two of these, a text has at most two tokens, of 4 bytes in the index each, and an element, of 8 bytes at
  // most. Strings are written twice.
  constexpr uint64_t kBytesOfSeparator = 16, kCopiesOfStrings = 2;
  const auto separators = static_cast<uint64_t>(std::count_if(
      text.begin(), text.end(), [](char each) { return each == ',' || each == ':' || each == '[' || each == '{'; }));
  return separators * kBytesOfSeparator + text.size() * kCopiesOfStrings;
}

Charge reserve_reading(Exchange& exchange, std::string_view text) {
  Charge charge;
  if (!exchange.reserve(reading_bytes(text), charge))
    throw Failure(Code::unavailable, "no memory to read the request's JSON");
  return charge;
}

void answer_in_background(Exchange& exchange, size_t json_bytes, std::function<void(Exchange&)> answer) {
  run_in_background(exchange.request().peer, json_bytes,
                    [json_bytes, answer = std::move(answer), exchange = ExchangeReference(exchange)] {
                      answer_failures(*exchange, [&] {
                        const Charge charge =
                            reserve_reading(*exchange, exchange->request().body.substr(0, json_bytes));
                        answer(*exchange);
                      });
                    });
}

void skip(JsonValue value, unsigned levels) {
  if (!levels) throw Failure(Code::invalid_argument, "the request's JSON is nested too deeply");
  switch (checked(value.type())) {
    case json_type::array:
      for (auto each : checked(value.get_array())) skip(checked<JsonValue>(each), levels - 1);
      break;
    case json_type::object:
      for (auto each : checked(value.get_object())) {
        auto field = checked(std::move(each));
        checked(field.unescaped_key());
        skip(std::move(field).value(), levels - 1);
      }
      break;
    case json_type::string:
      checked(value.get_string());
      break;
    case json_type::boolean:
      checked(value.get_bool());
      break;
    case json_type::null:
      if (!checked(value.is_null())) fail_syntax(simdjson::N_ATOM_ERROR);
      break;
    default:
      double number = 0;
      if (!read_any_number(value, number)) fail_syntax(simdjson::NUMBER_ERROR);
  }
}

Elements read_elements(JsonValue value, TRITONSERVER_DataType type, uint64_t count, size_t most, unsigned levels) {
  if (type == dtype::kFp16 || type == dtype::kBf16)
    fail_data(std::string("receiving ") + TRITONSERVER_DataTypeString(type) + " data via JSON is not supported");
  if (count != kAnyCount && count > most / 2 + 1) fail_shape();  // each has a comma or a bracket behind it
  if (type == dtype::kBytes) return read_with(StringReader(count), value, levels);
  Elements elements;
  const auto read = [&](auto item) { elements = read_with(NumberReader<decltype(item)>(count), value, levels); };
  if (!visit_dtype(type, read)) fail_data("the dtype is unknown");
  return elements;
}

uint64_t count_elements(const std::vector<int64_t>& shape, TRITONSERVER_DataType type, std::string_view input) {
  const size_t item = bytes_of(type);
  uint64_t bytes = item ? item : kLengthBytes;
  const uint64_t unit = bytes;
  bool is_possible = true, is_empty = false;
  for (const int64_t extent : shape) {
    is_possible &= extent >= 0;
    is_empty |= extent == 0;
    if (extent > 0) is_possible &= !__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
  }
  if (!is_possible || bytes > INT64_MAX) {
    throw Failure(Code::invalid_argument,
                  "input '" + std::string(input) + "' has a shape with negative or too large extents");
  }
  return is_empty ? 0 : bytes / unit;
}

}  // namespace pytriton::http
