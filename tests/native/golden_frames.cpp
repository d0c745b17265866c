// Writes and reads the frames of golden_frames.txt, as tests/unit/wire/test_golden_frames.py does.
// Usage: golden_frames <golden_frames.txt>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frames/tensors.h"
#include "frames/wire.h"

namespace {

using namespace pytriton;

[[noreturn]] void fail(const std::string& name, const char* what) {
  std::fprintf(stderr, "%s: %s\n", name.c_str(), what);
  std::exit(1);
}

std::map<std::string, std::string> read(const char* path) {
  std::ifstream file(path);
  std::map<std::string, std::string> frames;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.rfind(": ");
    std::string bytes;
    for (size_t at = colon + 2; at < line.size(); at += 2) {
      bytes += static_cast<char>(std::stoi(line.substr(at, 2), nullptr, 16));
    }
    frames[line.substr(0, colon)] = bytes;
  }
  return frames;
}

// The data of the frames' tensors.
constexpr std::array<float, 8> kFloats = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr std::string_view kStrings("\1\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0abcd", 20);
constexpr std::string_view kTwoStrings("\1\0\0\0\2\0\0\0abc", 11);
constexpr int64_t kSeven = 7;
constexpr std::string_view kBooleans("\1\0\1", 3);
constexpr std::array<double, 10'000> kZeros{};

Tensor tensor(uint16_t name, uint8_t dtype, std::vector<int64_t> shape, const void* data, uint64_t size,
              uint32_t request = kWholeBatch) {
  return {name, request, dtype, std::move(shape), size, {{data, size}}};
}

Outgoing frame(Kind kind, uint32_t number, uint32_t requests, std::vector<uint32_t> rows = {},
               std::string metadata = "") {
  Outgoing result;
  result.kind = kind;
  result.number = number;
  result.requests = requests;
  result.has_rows = !rows.empty();
  result.rows = std::move(rows);
  result.metadata = std::move(metadata);
  return result;
}

std::map<std::string, Outgoing> expected() {
  const uint8_t float32 = dtype_code("TYPE_FP32"), float64 = dtype_code("TYPE_FP64");
  std::map<std::string, Outgoing> frames;
  Outgoing* each = &(frames["whole batch"] = frame(Kind::request, 7, 2, {1, 3}, R"({"1":{"id":"a"}})"));
  each->released = {64};
  each->tensors = {tensor(0, float32, {4, 2}, kFloats.data(), 32),
                   tensor(1, kBytes, {4, 1}, kStrings.data(), kStrings.size())};
  each = &(frames["other rows"] = frame(Kind::request, 8, 1, {2}));
  each->tensors = {tensor(0, float32, {2, 2}, kFloats.data(), 16),
                   tensor(1, kBytes, {2, 1}, kTwoStrings.data(), kTwoStrings.size())};
  each = &(frames["single requests"] = frame(Kind::request, 9, 2));
  each->apart = true;
  each->tensors = {tensor(0, dtype_code("TYPE_INT64"), {}, &kSeven, 8, 0),
                   tensor(1, dtype_code("TYPE_BOOL"), {1, 3}, kBooleans.data(), kBooleans.size(), 1),
                   tensor(2, kBytes, {4, 1}, kStrings.data(), kStrings.size(), 1)};
  each = &(frames["a region"] = frame(Kind::response, 10, 1, {2}));
  each->region = 4096;
  each->tensors = {tensor(3, float64, {2, 5000}, kZeros.data(), 80'000)};
  each = &(frames["no rows"] = frame(Kind::response, 11, 1, {0}));
  each->tensors = {tensor(0, float32, {0, 2}, nullptr, 0)};
  frames["an error"] = frame(Kind::error, 12, 3, {}, R"({"message":"no"})");
  frames["cancelled requests"] = frame(Kind::cancel, 13, 2, {}, R"({"requests":[1],"all":false})");
  (frames["releases"] = frame(Kind::release, 14, 0)).released = {0, uint64_t{1} << 40};
  frames["goodbye"] = frame(Kind::goodbye, 0, 0);
  frames["a limit"] = frame(Kind::limit, 15, 0);
  return frames;
}

void compare(const std::string& name, const Outgoing& sent, const Frame& got) {
  if (got.kind != sent.kind || got.number != sent.number || got.requests != sent.requests || got.more ||
      got.apart != sent.apart || got.region != sent.region || got.metadata != sent.metadata) {
    fail(name, "a field differs");
  }
  if (got.has_rows != sent.has_rows || got.rows != sent.rows || got.released != sent.released)
    fail(name, "numbers differ");
  if (got.tensors.size() != sent.tensors.size()) fail(name, "the number of tensors differs");
  for (size_t index = 0; index < sent.tensors.size(); ++index) {
    const Tensor& expected = sent.tensors[index];
    const Placed& tensor = got.tensors[index];
    if (tensor.name != expected.name || tensor.request != expected.request || tensor.dtype != expected.dtype ||
        tensor.size != expected.size || tensor.rank != expected.shape.size()) {
      fail(name, "a tensor differs");
    }
    for (unsigned axis = 0; axis < tensor.rank; ++axis) {
      if (got.shape(tensor)[axis] != static_cast<uint64_t>(expected.shape[axis])) fail(name, "a shape differs");
    }
    const std::string_view data(static_cast<const char*>(expected.parts[0].at), expected.size);
    if (got.region == kNoRegion && got.data.substr(tensor.offset, tensor.size) != data) fail(name, "data differ");
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::map<std::string, std::string> golden = read(arguments[1]);
  const std::map<std::string, Outgoing> frames = expected();
  if (golden.size() != frames.size()) fail(arguments[1], "it has other frames");
  Frame read;  // the layout of the last one is known
  for (const auto& [name, bytes] : golden) {
    const auto found = frames.find(name);
    if (found == frames.end()) fail(name, "an unknown frame");
    std::vector<char> message;
    pack(found->second, message);
    if (std::string(message.data(), message.size()) != bytes) fail(name, "it is written in another way");
    unpack(bytes, read);
    compare(name, found->second, read);
  }
}
