// Numbers as /predict writes them: the fewest digits that give them again, in the application's spelling.
#pragma once

#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace pytriton::http {

constexpr size_t kLongestNumber = 40;  // characters

inline char* print_text(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

// Where the digits d.ddd * 10^exponent have their point: an exponent is only written far away from it.
inline char* print_digits(char* at, std::string_view digits, int exponent, int least, int most) {
  const int point = exponent + 1;  // digits before the point
  const auto count = static_cast<int>(digits.size());
  if (point <= least || point > most) {
    *at++ = digits[0];
    if (count > 1) {
      *at++ = '.';
      at = print_text(at, digits.substr(1));
    }
    *at++ = 'e';
    if (exponent > 0) *at++ = '+';
    return std::to_chars(at, at + 8, exponent).ptr;
  }
  if (point <= 0) {
    at = print_text(at, "0.");
    for (int zero = point; zero < 0; ++zero) *at++ = '0';
    return print_text(at, digits);
  }
  if (point >= count) {
    at = print_text(at, digits);
    for (int zero = count; zero < point; ++zero) *at++ = '0';
    return print_text(at, ".0");
  }
  at = print_text(at, digits.substr(0, static_cast<size_t>(point)));
  *at++ = '.';
  return print_text(at, digits.substr(static_cast<size_t>(point)));
}

template <typename Float>
char* print_float(char* at, Float number) {
  constexpr bool is_single = std::is_same_v<Float, float>;
  constexpr int kLeast = is_single ? -6 : -5, kMost = is_single ? 13 : 16;
  if (!std::isfinite(number))
    return print_text(at, std::isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  if (std::signbit(number)) *at++ = '-';
  if (number == 0) return print_text(at, "0.0");
  char text[kLongestNumber];
  const char* const end = std::to_chars(text, text + sizeof text, std::fabs(number), std::chars_format::scientific).ptr;
  const char* const mark = static_cast<const char*>(std::memchr(text, 'e', static_cast<size_t>(end - text)));
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  size_t count = static_cast<size_t>(mark - text);
  if (count > 1) {  // without the point
    std::memmove(text + 1, text + 2, count - 2);
    --count;
  }
  return print_digits(at, {text, count}, exponent, kLeast, kMost);
}

template <typename Number>
char* print_number(char* at, Number number) {
  if constexpr (std::is_same_v<Number, bool>) {
    return print_text(at, number ? "true" : "false");
  } else if constexpr (std::is_floating_point_v<Number>) {
    return print_float(at, number);
  } else {
    return std::to_chars(at, at + kLongestNumber, number).ptr;
  }
}

}  // namespace pytriton::http
