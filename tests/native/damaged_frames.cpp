// Gives the fuzzers' target random and damaged frames where there is no fuzzer. Built with sanitizers by the tests.
// Usage: damaged_frames <seed> <rounds> [<folder>, where each is put as a fuzzer's first inputs]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "chance.h"
#include "frames/tensors.h"
#include "frames/wire.h"
#include "target.h"

namespace {

using namespace pytriton;

constexpr size_t kFlags = 1 + 5, kLength = 1;  // their places after the byte that says how the frame arrives
constexpr uint8_t kMore = 4;
constexpr std::array<uint8_t, 3> kDtypes = {11, kBytes, 9};  // of the target's outputs

// Strings of one byte each, in the frames' form.
std::string strings(size_t elements) {
  std::string lengths;
  for (size_t element = 0; element < elements; ++element) lengths += std::string("\1\0\0\0", 4);
  return lengths + std::string(elements, 'a');
}

std::string metadata(Kind kind, Random& random) {
  if (kind == Kind::error) return R"({"message":"\u00e4\ud83d\ude00 \"x\"","code":"INTERNAL","isolate":true})";
  return up_to(random, 1) ? R"({"errors":{"0":{"message":"no","code":"CANCELLED"}}, "n": [1.5e3, null, "\n"]})" : "";
}

void add_tensor(Outgoing& frame, uint16_t name, uint32_t request, int64_t rows, std::vector<std::string>& data) {
  const uint8_t dtype = kDtypes[name];
  const auto elements = static_cast<size_t>(rows);
  data.push_back(dtype == kBytes ? strings(elements) : std::string(elements * item_size(dtype), 'x'));
  uint64_t size = data.back().size();
  if (frame.region != kNoRegion && dtype == kBytes) size = 4 * elements;  // the memory there is zeros: empty strings
  frame.tensors.push_back({name, request, dtype, {rows}, size, {{data.back().data(), size}}});
}

// A frame that is right, mostly.
std::vector<char> right_frame(Random& random) {
  Outgoing frame;
  frame.kind = up_to(random, 2) ? Kind::response : static_cast<Kind>(1 + up_to(random, 8));
  frame.requests = static_cast<uint32_t>(1 + up_to(random, 4));
  frame.released.resize(up_to(random, 3));
  frame.has_rows = up_to(random, 1);
  if (up_to(random, 3) == 0) frame.region = kAlign * up_to(random, 100);
  int64_t total = 0;
  for (uint32_t request = 0; frame.has_rows && request < frame.requests; ++request) {
    frame.rows.push_back(static_cast<uint32_t>(up_to(random, 3)));
    total += frame.rows.back();
  }
  frame.metadata = metadata(frame.kind, random);
  std::vector<std::string> data;
  data.reserve(3);
  auto name = static_cast<uint16_t>(up_to(random, 2));
  for (uint64_t tensors = up_to(random, 3); tensors > 0; --tensors) {
    const uint32_t request = frame.has_rows ? kWholeBatch : static_cast<uint32_t>(up_to(random, frame.requests - 1));
    add_tensor(frame, name, request, frame.has_rows ? total : 2, data);
    if (up_to(random, 7)) name = static_cast<uint16_t>((name + 1) % kDtypes.size());  // an output comes but once
  }
  std::vector<char> message;
  pack(frame, message);
  message.insert(message.begin(), static_cast<char>(2 * up_to(random, 3) + (up_to(random, 9) == 0)));
  if (up_to(random, 9) == 0) message[kFlags] = static_cast<char>(message[kFlags] | kMore);
  return message;
}

void damage(std::vector<char>& message, Random& random) {
  constexpr std::array<uint64_t, 10> numbers = {0,          1,          0x7F,      0xFF,       0xFFFF,
                                                0x7FFFFFFF, 0xFFFFFFFF, INT64_MAX, UINT64_MAX, uint64_t{1} << 62};
  for (uint64_t changes = up_to(random, 4); changes > 0 && !message.empty(); --changes) {
    const size_t at = up_to(random, message.size() - 1);
    const uint64_t number = up_to(random, 1) ? numbers[up_to(random, numbers.size() - 1)] : random();
    const size_t width = size_t{1} << up_to(random, 3);
    std::memcpy(message.data() + at, &number, std::min(width, message.size() - at));
  }
  if (up_to(random, 9) == 0) message.resize(up_to(random, message.size()));
  if (message.size() >= kLength + 4 && up_to(random, 3)) {  // so that more than the length is looked at
    const auto length = static_cast<uint32_t>(message.size() - kLength);
    std::memcpy(message.data() + kLength, &length, 4);
  }
  message.shrink_to_fit();  // so that a read beyond its end is seen
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return 2;
  Random random(std::strtoull(arguments[1], nullptr, 10));
  const long long rounds = std::strtoll(arguments[2], nullptr, 10);
  for (long long round = 0; round < rounds; ++round) {
    std::vector<char> message = right_frame(random);
    if (count == 4) {
      std::ofstream(std::string(arguments[3]) + "/" + std::to_string(round), std::ios::binary)
          .write(message.data(), static_cast<std::streamsize>(message.size()));
    }
    damage(message, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(message.data()), message.size());
  }
}
