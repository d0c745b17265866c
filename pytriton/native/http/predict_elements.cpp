#include "predict_elements.h"

#include <cstring>

namespace pytriton::http {

namespace {

constexpr int kInvalid = -1;
constexpr size_t kGroup = 4;  // characters for three bytes

int digit_of(char each) {
  if (each >= 'A' && each <= 'Z') return each - 'A';
  if (each >= 'a' && each <= 'z') return each - 'a' + 26;
  if (each >= '0' && each <= '9') return each - '0' + 52;
  return each == '+' ? 62 : each == '/' ? 63 : kInvalid;
}

// {"b64": "..."}
bool read_base64_object(JsonValue& value, std::string& bytes) {
  simdjson::ondemand::object members;
  if (value.get_object().get(members)) return false;
  bool is_read = false;
  for (auto member : members) {
    std::string_view name, text;
    if (is_read || member.unescaped_key().get(name) || name != "b64") return false;
    if (member.value().get_string().get(text) || !decode_base64(text, bytes)) return false;
    is_read = true;
  }
  return is_read;
}

void append_string(Bytes& to, std::string_view text) {
  to.append(static_cast<uint32_t>(text.size()));  // a body has less than 4 GiB
  to.append(text.data(), text.size());
}

}  // namespace

uint16_t half_of(double number) {
  constexpr int kFraction = 10, kBias = 15, kLeast = -14;
  constexpr uint16_t kInfinity = 0x7C00, kNan = 0x7E00, kSign = 0x8000;
  const uint16_t sign = std::signbit(number) ? kSign : 0;
  if (std::isnan(number)) return sign | kNan;
  const double magnitude = std::fabs(number);
  if (std::isinf(magnitude) || magnitude >= 65520) return sign | kInfinity;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, kLeast);
  // In units of the last place: rounded by the processor, to even.
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, kFraction - exponent)));
  // A fraction that was rounded up to the next power of two carries into the exponent; a subnormal number has none.
  const uint32_t biased = static_cast<uint32_t>(exponent + kBias - 1) << kFraction;
  return static_cast<uint16_t>(sign | (biased + units));
}

double number_of_half(uint16_t half) {
  constexpr int kFraction = 10;
  const int exponent = (half >> kFraction) & 0x1F;
  const int fraction = half & 0x3FF;
  double number = 0;
  if (exponent == 0x1F) {
    number = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent) {
    number = std::ldexp(fraction + 1024, exponent - 25);
  } else {
    number = std::ldexp(fraction, -24);
  }
  return half & 0x8000 ? -number : number;
}

bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % kGroup) return false;
  bytes.reserve(text.size() / kGroup * 3);
  for (size_t start = 0; start < text.size(); start += kGroup) {
    size_t padding = 0;
    if (start + kGroup == text.size()) padding = text[start + 3] != '=' ? 0 : text[start + 2] != '=' ? 1 : 2;
    uint32_t bits = 0;
    for (size_t index = 0; index < kGroup; ++index) {
      const int digit = index + padding < kGroup ? digit_of(text[start + index]) : 0;
      if (digit == kInvalid) return false;
      bits = bits << 6U | static_cast<uint32_t>(digit);
    }
    for (size_t index = 0; index + padding < 3; ++index) bytes += static_cast<char>(bits >> (16 - 8 * index) & 0xFFU);
  }
  return true;
}

bool BooleanElement::operator()(JsonValue& value, const Field& field, Bytes& to) const {
  bool flag = false;
  if (value.get_bool().get(flag)) return false;
  const auto& members = field.constraints.members;
  const auto is_it = [flag](const Constraints::Member& member) {
    const auto* listed = std::get_if<bool>(&member);
    return listed && *listed == flag;
  };
  if (!members.empty() && std::none_of(members.begin(), members.end(), is_it)) return false;
  to.append(static_cast<uint8_t>(flag));
  return true;
}

bool TextElement::operator()(JsonValue& value, const Field& field, Bytes& to) const {
  const bool is_base64 = field.content == Field::Content::base64;
  std::string_view text;
  std::string bytes;
  if (value.get_string().get(text)) {
    if (field.content != Field::Content::text_or_base64 || !read_base64_object(value, bytes)) return false;
    text = bytes;
  } else if (is_base64) {
    if (!decode_base64(text, bytes)) return false;
    text = bytes;
  }
  if (field.constraints.has_any && !field.constraints.allow_text(text, !is_base64)) return false;
  append_string(to, text);
  return true;
}

}  // namespace pytriton::http
