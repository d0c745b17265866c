// Protocol buffers: reads and writes fields one by one, without a copy, and without recursion.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "../frames/failure.h"

namespace pytriton::http {

constexpr unsigned kEntryKey = 1, kEntryValue = 2;  // of an entry of a map

[[noreturn]] inline void refuse(const std::string& message) { throw Failure(Code::invalid_argument, message); }

// The fields of one message. Throws Failure if it is none; a group, which no message here has, makes it none.
class ProtoReader {
 public:
  enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  explicit ProtoReader(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }

  // The next field's number, whose value has to be read or skipped then; 0 at the end.
  unsigned next() {
    if (rest_.empty()) return 0;
    const uint64_t tag = raw_varint();
    wire_ = static_cast<unsigned>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > kMostField) fail();
    return static_cast<unsigned>(tag >> 3);
  }

  uint64_t varint() { return expect(kVarint), raw_varint(); }
  std::string_view bytes() {
    expect(kBytes);
    const uint64_t size = raw_varint();
    if (size > rest_.size()) fail();
    const std::string_view value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }
  double number() { return expect(kFixed64), raw_fixed<double>(); }

  // Text without NUL, which the server's functions cannot take.
  std::string text() {
    const std::string_view value = bytes();
    if (value.find('\0') != std::string_view::npos) refuse("a text of the request has a NUL character");
    return std::string(value);
  }

  void skip() {
    switch (wire_) {
      case kVarint:
        raw_varint();
        return;
      case kFixed64:
        raw_fixed<uint64_t>();
        return;
      case kBytes:
        bytes();
        return;
      case kFixed32:
        raw_fixed<uint32_t>();
        return;
      default:
        fail();
    }
  }

  // Calls `append` with each value of a repeated number, packed or not.
  template <typename Append>
  void varints(const Append& append) {
    if (wire_ != kBytes) return append(varint());
    ProtoReader packed(bytes());
    while (!packed.at_end()) append(packed.raw_varint());
  }
  template <typename Value, typename Append>
  void fixed(const Append& append) {
    if (wire_ != kBytes) return expect(sizeof(Value) == 4 ? kFixed32 : kFixed64), append(raw_fixed<Value>());
    ProtoReader packed(bytes());
    while (!packed.at_end()) append(packed.raw_fixed<Value>());
  }

  [[noreturn]] static void fail() { throw Failure(Code::invalid_argument, "the message is not a valid request"); }

 private:
  static constexpr uint64_t kMostField = (1 << 29) - 1;
  static constexpr unsigned kMostVarintBits = 70;

  void expect(unsigned wire) const {
    if (wire_ != wire) fail();
  }
  uint64_t raw_varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < kMostVarintBits; shift += 7) {
      if (rest_.empty()) fail();
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;  // the last byte's upper bits are beyond 64
      if (!(byte & 0x80)) return value;
    }
    fail();
  }
  template <typename Value>
  Value raw_fixed() {
    Value value;
    if (rest_.size() < sizeof value) fail();
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view rest_;
  unsigned wire_ = 0;
};

// Appends fields to a message.
class ProtoWriter {
 public:
  explicit ProtoWriter(std::string& to) : to_(to) {}

  void varint(unsigned field, uint64_t value) { tag(field, ProtoReader::kVarint), raw_varint(value); }
  void flag(unsigned field, bool value) { varint(field, value ? 1 : 0); }
  void number(unsigned field, double value) {
    tag(field, ProtoReader::kFixed64);
    to_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void real(unsigned field, float value) {
    tag(field, ProtoReader::kFixed32);
    to_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void bytes(unsigned field, std::string_view value) { size(field, value.size()), to_ += value; }
  void size(unsigned field, size_t size) { tag(field, ProtoReader::kBytes), raw_varint(size); }  // before its bytes
  void raw_varint(uint64_t value) {
    for (; value > 0x7f; value >>= 7) to_ += static_cast<char>(value | 0x80);
    to_ += static_cast<char>(value);
  }

 private:
  void tag(unsigned field, unsigned wire) { raw_varint(uint64_t{field} << 3 | wire); }

  std::string& to_;
};

}  // namespace pytriton::http
