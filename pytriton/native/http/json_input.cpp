// JSON of requests: the parser, and the elements of tensors.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

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

bool read_number(JsonValue& value, double& number) {
  return value.get_double().get(number) == simdjson::SUCCESS || read_non_finite(value, number);
}
bool read_number(JsonValue& value, int64_t& number) { return value.get_int64().get(number) == simdjson::SUCCESS; }
bool read_number(JsonValue& value, uint64_t& number) { return value.get_uint64().get(number) == simdjson::SUCCESS; }
bool read_number(JsonValue& value, bool& number) { return value.get_bool().get(number) == simdjson::SUCCESS; }

// The type that a number is read as.
template <typename Item>
using Wide = std::conditional_t<std::is_same_v<Item, bool>, bool,
                                std::conditional_t<std::is_floating_point_v<Item>, double,
                                                   std::conditional_t<std::is_signed_v<Item>, int64_t, uint64_t>>>;

template <typename Item>
Item narrowed(Wide<Item> number) {
  if constexpr (!std::is_same_v<Item, Wide<Item>>) {
    constexpr auto most = std::numeric_limits<Item>::max();
    constexpr auto least = std::numeric_limits<Item>::lowest();
    if constexpr (std::is_same_v<Item, float>) {
      if (std::isfinite(number) && std::isinf(static_cast<float>(number))) fail_data("a number is too large for FP32");
    } else if (number > most || number < least) {
      fail_data(std::to_string(number) + " is not in the range from " + std::to_string(least) + " to " +
                std::to_string(most));
    }
  }
  return static_cast<Item>(number);
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

template <typename Item>
class NumberReader {
 public:
  explicit NumberReader(uint64_t count) : count_(count), capacity_(count == kAnyCount ? kFirstCapacity : count) {
    if (capacity_ > SIZE_MAX / 2 / sizeof(Item)) fail_shape();
    memory_ = allocate(capacity_ * sizeof(Item));
  }

  bool operator()(JsonValue& value) {
    Wide<Item> number{};
    if (!read_number(value, number)) return false;
    if (size_ == capacity_) grow();
    reinterpret_cast<Item*>(memory_.get())[size_++] = narrowed<Item>(number);
    return true;
  }
  static void fail() { fail_data(kWrongType<Wide<Item>>); }
  Elements elements() {
    if (count_ != kAnyCount && size_ != count_) fail_shape();
    return {std::move(memory_), size_ * sizeof(Item), size_};
  }

 private:
  static constexpr uint64_t kFirstCapacity = 16;

  void grow() {
    if (count_ != kAnyCount) fail_shape();
    Memory larger = allocate(2 * capacity_ * sizeof(Item));
    std::memcpy(larger.get(), memory_.get(), size_ * sizeof(Item));
    memory_ = std::move(larger);
    capacity_ *= 2;
  }

  const uint64_t count_;
  uint64_t capacity_, size_ = 0;
  Memory memory_;
};

// Grows as strings come, so that no more memory is taken than for what was sent.
class StringReader {
 public:
  explicit StringReader(uint64_t count) : count_(count) {}

  bool operator()(JsonValue& value) {
    std::string_view text;
    if (value.get_string().get(text)) return false;
    if (size_++ == count_) fail_shape();
    const auto length = static_cast<uint32_t>(text.size());  // a document has less than 4 GiB
    bytes_.append(reinterpret_cast<const char*>(&length), kLengthBytes).append(text);
    return true;
  }
  static void fail() {
    throw Failure(Code::invalid_argument,
                  "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
  }
  Elements elements() const {
    if (count_ != kAnyCount && size_ != count_) fail_shape();
    Elements elements{allocate(bytes_.size()), bytes_.size(), size_};
    std::memcpy(elements.data.get(), bytes_.data(), bytes_.size());
    return elements;
  }

 private:
  const uint64_t count_;
  uint64_t size_ = 0;
  std::string bytes_;
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
      if (!read_number(value, number)) fail_syntax(simdjson::NUMBER_ERROR);
  }
}

Elements read_elements(JsonValue value, TRITONSERVER_DataType type, uint64_t count, size_t most, unsigned levels) {
  if (type == dtype::kFp16 || type == dtype::kBf16)
    fail_data(std::string("receiving ") + TRITONSERVER_DataTypeString(type) + " data via JSON is not supported");
  if (count != kAnyCount && count > most) fail_shape();
  switch (type) {
    case dtype::kBool:
      return read_with(NumberReader<bool>(count), value, levels);
    case dtype::kUint8:
      return read_with(NumberReader<uint8_t>(count), value, levels);
    case dtype::kUint16:
      return read_with(NumberReader<uint16_t>(count), value, levels);
    case dtype::kUint32:
      return read_with(NumberReader<uint32_t>(count), value, levels);
    case dtype::kUint64:
      return read_with(NumberReader<uint64_t>(count), value, levels);
    case dtype::kInt8:
      return read_with(NumberReader<int8_t>(count), value, levels);
    case dtype::kInt16:
      return read_with(NumberReader<int16_t>(count), value, levels);
    case dtype::kInt32:
      return read_with(NumberReader<int32_t>(count), value, levels);
    case dtype::kInt64:
      return read_with(NumberReader<int64_t>(count), value, levels);
    case dtype::kFp32:
      return read_with(NumberReader<float>(count), value, levels);
    case dtype::kFp64:
      return read_with(NumberReader<double>(count), value, levels);
    case dtype::kBytes:
      return read_with(StringReader(count), value, levels);
    default:
      fail_data("the dtype is unknown");
  }
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
