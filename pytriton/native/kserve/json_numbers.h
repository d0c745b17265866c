// Numbers as JSON: the fewest digits that give them again, as orjson writes them, with which the application does.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace pytriton::http {

constexpr size_t kLongestNumber = 64;  // characters that print_number() may touch

inline char* print_text(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

char* print_float(char* at, float number);  // a finite one
char* print_float(char* at, double number);

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
