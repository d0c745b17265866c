#include "json_numbers.h"

#include <array>
#include <cmath>

namespace pytriton::http {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr size_t kMostDigits = 17;  // of a number of 64 bits
constexpr size_t kBlock = 24;       // digits are copied as so many bytes, which needs no loop

// A decimal number d.ddd * 10^exponent.
struct Digits {
  char text[kBlock];
  int count;
  int exponent;
};

// An exponent is only written far away from the point.
char* print_digits(char* at, const Digits& digits, int least, int most) {
  const int point = digits.exponent + 1, count = digits.count;  // digits before the point; of all
  if (point > 0 && point <= most) {
    std::memcpy(at, digits.text, kBlock);
    if (point >= count) {
      std::memset(at + count, '0', static_cast<size_t>(point - count));
      return print_text(at + point, ".0");
    }
    at += point;
    *at++ = '.';
    std::memcpy(at, digits.text + point, kBlock - kMostDigits + 1);
    if (count - point > static_cast<int>(kBlock - kMostDigits))
      std::memcpy(at, digits.text + point, static_cast<size_t>(count - point));
    return at + count - point;
  }
  if (point > least && point <= 0) {
    at = print_text(at, "0.");
    std::memset(at, '0', static_cast<size_t>(-least));
    at -= point;
    std::memcpy(at, digits.text, kBlock);
    return at + count;
  }
  *at++ = digits.text[0];
  if (count > 1) {
    *at++ = '.';
    at = print_text(at, {digits.text + 1, static_cast<size_t>(count - 1)});
  }
  *at++ = 'e';
  if (digits.exponent > 0) *at++ = '+';
  return std::to_chars(at, at + 8, digits.exponent).ptr;
}

// Numbers of 32 bits, by the algorithm Schubfach: Raffaello Giulietti, "The Schubfach way to render doubles", 2020.

constexpr int kLeastPower = -31, kMostPower = 45;

constexpr int floor_log2_of_power_of_10(int power) { return (power * 1741647) >> 19; }

// 10^power as 64 bits, the highest of which is 1, rounded up.
constexpr std::array<uint64_t, kMostPower - kLeastPower + 1> make_powers() {
  std::array<uint64_t, kMostPower - kLeastPower + 1> powers{};
  constexpr Wide kHighest = Wide{1} << 127U;
  const auto rounded = [](Wide power) {
    return static_cast<uint64_t>(power >> 64U) + (static_cast<uint64_t>(power) ? 1 : 0);
  };
  Wide power = kHighest;
  for (int each = 0; each <= kMostPower; ++each) {
    powers[static_cast<size_t>(each - kLeastPower)] = rounded(power);
    const Wide ten_sixteenths = (power >> 1U) + (power >> 3U);  // 10 times it, with another power of 2
    power = ten_sixteenths >= kHighest ? ten_sixteenths : power + (power >> 2U);
  }
  power = kHighest;
  for (int each = -1; each >= kLeastPower; --each) {
    // A tenth, times the power of 2 that gives it the highest bit.
    const Wide tenth = power / 10, rest = power % 10;
    Wide next = tenth * 8 + rest * 8 / 10;
    if (next < kHighest) next = tenth * 16 + rest * 16 / 10;
    power = next;
    powers[static_cast<size_t>(each - kLeastPower)] = rounded(power);
  }
  return powers;
}

constexpr auto kPowers = make_powers();

// The product's highest bits, of which the last tells whether there were others below.
uint32_t rounded_to_odd(uint64_t power, uint32_t number) {
  const Wide product = Wide{power} * number;
  const auto high = static_cast<uint32_t>(product >> 64U);
  return high | (static_cast<uint32_t>(product >> 32U) > 1 ? 1 : 0);
}

struct Decimal {
  uint32_t digits;
  int exponent;  // of the last digit
};

Decimal shortest_decimal(float number) {
  constexpr int kFractionBits = 23, kBias = 127 + kFractionBits;
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  const uint32_t fraction = bits & ((1U << kFractionBits) - 1);
  const auto biased = static_cast<int>(bits >> kFractionBits & 0xFFU);
  const uint32_t significand = biased ? fraction | 1U << kFractionBits : fraction;
  const int exponent = biased ? biased - kBias : 1 - kBias;

  // The numbers that are rounded to this one lie between these, in quarters of its last place.
  const bool is_even = significand % 2 == 0, is_lower_closer = !fraction && biased > 1;
  const uint32_t middle = 4 * significand, low = middle - 2 + (is_lower_closer ? 1 : 0), high = middle + 2;
  const int last = (exponent * 1262611 - (is_lower_closer ? 524031 : 0)) >> 22;  // floor of the logarithm to 10
  const int shift = exponent + floor_log2_of_power_of_10(-last) + 1;
  const uint64_t power = kPowers[static_cast<size_t>(-last - kLeastPower)];
  const uint32_t scaled = rounded_to_odd(power, middle << static_cast<unsigned>(shift));
  const uint32_t lower = rounded_to_odd(power, low << static_cast<unsigned>(shift)) + (is_even ? 0 : 1);
  const uint32_t upper = rounded_to_odd(power, high << static_cast<unsigned>(shift)) - (is_even ? 0 : 1);

  const uint32_t whole = scaled / 4;
  if (whole >= 10) {  // one digit less
    const uint32_t tens = whole / 10;
    const bool is_below_inside = lower <= 40 * tens, is_above_inside = 40 * tens + 40 <= upper;
    if (is_below_inside != is_above_inside) return {tens + (is_above_inside ? 1 : 0), last + 1};
  }
  const bool is_below_inside = lower <= 4 * whole, is_above_inside = 4 * whole + 4 <= upper;
  if (is_below_inside != is_above_inside) return {whole + (is_above_inside ? 1 : 0), last};
  const uint32_t half = 4 * whole + 2;
  const bool is_above = scaled > half || (scaled == half && whole % 2);
  return {whole + (is_above ? 1 : 0), last};
}

constexpr std::array<char, 200> make_pairs() {
  std::array<char, 200> pairs{};
  for (size_t number = 0; number < 100; ++number) {
    pairs[2 * number] = static_cast<char>('0' + number / 10);
    pairs[2 * number + 1] = static_cast<char>('0' + number % 10);
  }
  return pairs;
}

constexpr auto kPairs = make_pairs();

// Of eight digits, the first of which is the lowest byte.
uint64_t without_zeros(const char* digits) {
  constexpr uint64_t kZeros = 0x3030303030303030;
  uint64_t bytes = 0;
  std::memcpy(&bytes, digits, sizeof bytes);
  return bytes ^ kZeros;
}

int zeros_at_first(const char* digits) {
  const uint64_t bytes = without_zeros(digits);
  return bytes ? __builtin_ctzll(bytes) / 8 : 8;
}

int zeros_at_end(const char* end) {
  const uint64_t bytes = without_zeros(end - 8);
  return bytes ? __builtin_clzll(bytes) / 8 : 8;
}

Digits digits_of(Decimal decimal) {
  // Five pairs, of which none waits for another.
  const uint32_t high = decimal.digits / 10'000, low = decimal.digits % 10'000;
  const uint32_t numbers[] = {high / 10'000, high / 100 % 100, high % 100, low / 100, low % 100};
  constexpr int kWidth = 10;
  char text[kWidth + kBlock] = {};
  for (size_t pair = 0; pair < 5; ++pair) std::memcpy(text + 2 * pair, &kPairs[size_t{2} * numbers[pair]], 2);
  int first = zeros_at_first(text), end = kWidth - zeros_at_end(text + kWidth);
  if (first == 8 && text[first] == '0') ++first;
  if (end == kWidth - 8 && text[end - 1] == '0') --end;
  Digits digits;
  std::memcpy(digits.text, text + first, kBlock);
  digits.count = end - first;
  digits.exponent = decimal.exponent + kWidth - 1 - first;
  return digits;
}

}  // namespace

char* print_float(char* at, float number) {
  constexpr int kLeast = -6, kMost = 13;
  if (number == 0) return print_text(at, std::signbit(number) ? "-0.0" : "0.0");
  if (std::signbit(number)) *at++ = '-';
  return print_digits(at, digits_of(shortest_decimal(number)), kLeast, kMost);
}

char* print_float(char* at, double number) {
  constexpr int kLeast = -5, kMost = 16;
  if (number == 0) return print_text(at, std::signbit(number) ? "-0.0" : "0.0");
  if (std::signbit(number)) *at++ = '-';
  char text[kLongestNumber];
  const char* const end = std::to_chars(text, text + sizeof text, std::fabs(number), std::chars_format::scientific).ptr;
  const char* const mark = static_cast<const char*>(std::memchr(text, 'e', static_cast<size_t>(end - text)));
  Digits digits{};
  digits.text[0] = text[0];
  digits.count = mark - text > 1 ? static_cast<int>(mark - text) - 1 : 1;  // without the point
  if (digits.count > 1) std::memcpy(digits.text + 1, text + 2, static_cast<size_t>(digits.count - 1));
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, digits.exponent);
  return print_digits(at, digits, kLeast, kMost);
}

}  // namespace pytriton::http
