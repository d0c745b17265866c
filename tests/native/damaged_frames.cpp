// Reads random and damaged frames as the proxy does: each has to end in values within bounds or in a FrameError.
// Built with sanitizers by the tests. Usage: damaged_frames <seed> <rounds>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "failure.h"
#include "json.h"
#include "layout.h"
#include "wire.h"

namespace {

using namespace pytriton;
using Random = std::mt19937_64;

uint64_t up_to(Random& random, uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random); }

// A frame that is right: rows, numbers and strings.
std::vector<char> right_frame(Random& random) {
  Outgoing frame;
  frame.kind = static_cast<Kind>(1 + up_to(random, 8));
  frame.requests = static_cast<uint32_t>(1 + up_to(random, 4));
  frame.released.resize(up_to(random, 3));
  frame.has_rows = up_to(random, 1);
  int64_t total = 0;
  for (uint32_t request = 0; frame.has_rows && request < frame.requests; ++request) {
    frame.rows.push_back(static_cast<uint32_t>(up_to(random, 3)));
    total += frame.rows.back();
  }
  frame.metadata =
      up_to(random, 1) ? R"({"errors":{"0":{"message":"\u00e4\ud83d\ude00 \"x\"","code":"INTERNAL"}}})" : "";
  static const char memory[4096] = {2, 0, 0, 0, 1, 0, 0, 0, 'a', 'b', 'c'};
  for (uint64_t tensors = up_to(random, 3); tensors > 0; --tensors) {
    const auto dtype = static_cast<uint8_t>(1 + up_to(random, 12));
    const int64_t rows = frame.has_rows ? total : 2;
    const uint64_t size = dtype == kBytes ? 11 : static_cast<uint64_t>(rows) * item_size(dtype);
    const uint32_t request = frame.has_rows ? kWholeBatch : static_cast<uint32_t>(up_to(random, frame.requests - 1));
    frame.tensors.push_back({static_cast<uint16_t>(up_to(random, 2)), request, dtype, {rows}, size, {{memory, size}}});
  }
  std::vector<char> message;
  pack(frame, message);
  return message;
}

void damage(std::vector<char>& message, Random& random) {
  static const uint64_t numbers[] = {0,          1,          0x7F,      0xFF,       0xFFFF,
                                     0x7FFFFFFF, 0xFFFFFFFF, INT64_MAX, UINT64_MAX, 1ull << 62};
  for (uint64_t changes = up_to(random, 4); changes > 0 && !message.empty(); --changes) {
    const size_t at = up_to(random, message.size() - 1);
    const uint64_t number = up_to(random, 1) ? numbers[up_to(random, std::size(numbers) - 1)] : random();
    const size_t width = size_t{1} << up_to(random, 3);
    std::memcpy(message.data() + at, &number, std::min(width, message.size() - at));
  }
  if (up_to(random, 9) == 0) message.resize(up_to(random, message.size()));
  if (message.size() >= 4 && up_to(random, 3)) {  // so that more than the length is looked at
    const auto length = static_cast<uint32_t>(message.size());
    std::memcpy(message.data(), &length, 4);
  }
}

// What decode.cpp does with a frame; the sum keeps the reads in the program.
uint64_t read(const std::vector<char>& message) {
  const Frame frame = unpack({message.data(), message.size()});
  uint64_t sum = frame.released.size() + frame.data_bytes();
  for (const Placed& tensor : frame.tensors) {
    const Checked checked = check(frame, tensor, frame.data.size());
    const std::string bytes(frame.data.substr(tensor.offset, tensor.size));
    if (checked.item) {
      for (uint64_t at = 0; at < checked.elements * checked.item; ++at) sum += static_cast<unsigned char>(bytes[at]);
    } else {
      uint64_t at = 4 * checked.elements;
      for (const uint32_t length : string_lengths(bytes, checked.elements)) {
        sum += bytes.substr(at, length).size();
        at += length;
      }
      std::string lengths, strings;
      split_strings(bytes, checked.elements, lengths, strings);
    }
  }
  if (!frame.metadata.empty()) {
    const Json status = Json::parse(frame.metadata);
    for (const auto& [number, error] : status["errors"].object()) {
      sum += number.size() + error["message"].text().size();
    }
  }
  return sum;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  Random random(std::strtoull(arguments[1], nullptr, 10));
  uint64_t right = 0, refused = 0, sum = 0;
  for (long long rounds = std::atoll(arguments[2]); rounds > 0; --rounds) {
    std::vector<char> message = right_frame(random);
    damage(message, random);
    message.shrink_to_fit();  // so that a read beyond its end is seen
    try {
      sum += read(message);
      ++right;
    } catch (const Failure&) {
      ++refused;
    }
  }
  std::printf("%llu right, %llu refused, sum %llu\n", static_cast<unsigned long long>(right),
              static_cast<unsigned long long>(refused), static_cast<unsigned long long>(sum));
  return right && refused ? 0 : 1;
}
