// Elements of inputs, as /predict has them in JSON.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "json_elements.h"
#include "predict_rows.h"

namespace pytriton::http {

// IEEE 754's binary16, whose bits are these: rounded to the nearest, ties to even.
uint16_t half_of(double number);
double number_of_half(uint16_t half);

// The bytes of base64 with its padding; false if it is anything else.
bool decode_base64(std::string_view text, std::string& bytes);

// Whether a token is an integer of JSON: it has no fraction and no exponent.
inline bool is_integer(std::string_view token) { return token.find_first_of(".eE") == std::string_view::npos; }

// Each reads one element, appends it and returns whether it could.
template <typename Item>
struct IntegerElement {
  bool operator()(JsonValue& value, const Field& field, Bytes& to) const {
    using Wide = std::conditional_t<std::is_signed_v<Item>, int64_t, uint64_t>;
    Wide number = 0;
    if constexpr (std::is_signed_v<Item>) {
      if (value.get_int64().get(number)) return false;
    } else {
      if (value.get_uint64().get(number)) return false;
    }
    if (number > std::numeric_limits<Item>::max() || number < std::numeric_limits<Item>::min()) return false;
    if (field.constraints.has_any && !is_allowed(field.constraints, number)) return false;
    to.append(static_cast<Item>(number));
    return true;
  }

 private:
  template <typename Wide>
  static bool is_allowed(const Constraints& constraints, Wide number) {
    if (!constraints.allow_number(number)) return false;
    if (constraints.members.empty()) return true;
    for (const auto& member : constraints.members) {
      if (const auto* integer = std::get_if<int64_t>(&member)) {
        if (*integer == static_cast<int64_t>(number) && (*integer >= 0 || std::is_signed_v<Wide>)) return true;
      } else if (const auto* natural = std::get_if<uint64_t>(&member)) {
        if (*natural == static_cast<uint64_t>(number) && number > 0) return true;
      }
    }
    return false;
  }
};

enum class Half : uint16_t {};

template <typename Item>
struct NumberElement {
  bool operator()(JsonValue& value, const Field& field, Bytes& to) const {
    double number = 0;
    if (value.get_double().get(number)) {
      std::string_view text;
      if (value.get_string().get(text) || !read_special(text, number)) return false;
      if (!field.constraints.members.empty()) return false;
    } else if (!is_exact(value, number) || !is_member(field.constraints, value, number)) {
      return false;
    }
    if (field.constraints.has_any && !field.constraints.allow_number(number)) return false;
    return append(number, to);
  }

 private:
  static bool read_special(std::string_view text, double& number) {
    if (text == "NaN") {
      number = std::numeric_limits<double>::quiet_NaN();
    } else if (text == "Infinity" || text == "-Infinity") {
      number = std::numeric_limits<double>::infinity() * (text[0] == '-' ? -1 : 1);
    } else {
      return false;
    }
    return true;
  }

  // -0 is the integer 0, and integers that 64 bits cannot hold are the application's.
  static bool is_exact(JsonValue& value, double& number) {
    constexpr double kLargest = 9.2e18;
    if (number == 0) {
      if (std::signbit(number) && is_integer(value.raw_json_token())) number = 0;
      return true;
    }
    return std::fabs(number) < kLargest || !is_integer(value.raw_json_token());
  }

  // An enumeration's members are floating-point numbers; an integer is none of them.
  static bool is_member(const Constraints& constraints, JsonValue& value, double number) {
    if (constraints.members.empty()) return true;
    if (is_integer(value.raw_json_token())) return false;
    for (const auto& member : constraints.members)
      if (const auto* listed = std::get_if<double>(&member); listed && *listed == number) return true;
    return false;
  }

  static bool append(double number, Bytes& to) {
    if constexpr (std::is_same_v<Item, Half>) {
      constexpr uint16_t kInfinity = 0x7C00, kMagnitude = 0x7FFF;
      const uint16_t half = half_of(number);
      if ((half & kMagnitude) == kInfinity && std::isfinite(number)) return false;
      to.append(half);
    } else {
      const auto item = static_cast<Item>(number);
      if (!std::isfinite(item) && std::isfinite(number)) return false;
      to.append(item);
    }
    return true;
  }
};

struct BooleanElement {
  bool operator()(JsonValue& value, const Field& field, Bytes& to) const;
};

struct TextElement {
  bool operator()(JsonValue& value, const Field& field, Bytes& to) const;
};

// Calls `visit` with what reads the elements of a field.
template <typename Visit>
void visit_elements(const Field& field, const Visit& visit) {
  switch (field.dtype) {
    case dtype::kBool:
      return visit(BooleanElement{});
    case dtype::kUint8:
      return visit(IntegerElement<uint8_t>{});
    case dtype::kUint16:
      return visit(IntegerElement<uint16_t>{});
    case dtype::kUint32:
      return visit(IntegerElement<uint32_t>{});
    case dtype::kUint64:
      return visit(IntegerElement<uint64_t>{});
    case dtype::kInt8:
      return visit(IntegerElement<int8_t>{});
    case dtype::kInt16:
      return visit(IntegerElement<int16_t>{});
    case dtype::kInt32:
      return visit(IntegerElement<int32_t>{});
    case dtype::kInt64:
      return visit(IntegerElement<int64_t>{});
    case dtype::kFp16:
      return visit(NumberElement<Half>{});
    case dtype::kFp32:
      return visit(NumberElement<float>{});
    case dtype::kFp64:
      return visit(NumberElement<double>{});
    default:
      return visit(TextElement{});
  }
}

}  // namespace pytriton::http
