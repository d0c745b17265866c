// Time and numbers.
#pragma once

#include <charconv>
#include <cstdint>
#include <ctime>
#include <string>

namespace pytriton::http {

constexpr int64_t kSecond_ns = 1'000'000'000, kMillisecond_ns = 1'000'000, kMicrosecond_ns = 1'000;

inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond_ns + time.tv_nsec;
}

inline void append_number(std::string& to, int64_t number) {
  char digits[24];
  to.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

}  // namespace pytriton::http
