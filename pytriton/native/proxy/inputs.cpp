#include "inputs.h"

#include <algorithm>
#include <cstring>

#include "../frames/handles.h"
#include "../frames/tensors.h"

namespace pytriton {

namespace {

Input input_at(TRITONBACKEND_Request* request, uint32_t index) {
  Input input{};
  TRITONSERVER_DataType dtype{};
  check(TRITONBACKEND_RequestInputByIndex(request, index, &input.handle));
  check(TRITONBACKEND_InputProperties(input.handle, &input.name, &dtype, &input.shape, &input.rank, &input.size,
                                      &input.buffers));
  input.dtype = static_cast<uint8_t>(dtype);
  return input;
}

uint32_t input_count(TRITONBACKEND_Request* request) {
  uint32_t inputs = 0;
  check(TRITONBACKEND_RequestInputCount(request, &inputs));
  return inputs;
}

std::string shown(const int64_t* shape, size_t rank) {
  std::string text;
  for (size_t axis = 0; axis < rank; ++axis) text += (axis ? "," : "") + std::to_string(shape[axis]);
  return "[" + text + "]";
}

// Whether an input is what the model expects; counts its elements.
bool fits(Input& input, const ExpectedInput& expected) {
  if (input.dtype != expected.dtype || input.rank != expected.shape.size() || input.rank > kMaxRank) return false;
  const uint64_t item = input.dtype == kBytes ? sizeof(void*) : item_size(input.dtype);  // in NumPy's arrays
  uint64_t bytes = item;
  bool is_empty = false;
  for (uint32_t axis = 0; axis < input.rank; ++axis) {
    const int64_t extent = input.shape[axis];
    if (extent < 0 || (expected.shape[axis] >= 0 && extent != expected.shape[axis])) return false;
    is_empty |= extent == 0;
    if (extent == 0) continue;  // NumPy limits the product of the others all the same
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes) || bytes > INT64_MAX) return false;
  }
  input.elements = is_empty ? 0 : bytes / item;
  return input.dtype == kBytes || input.size == input.elements * item;
}

}  // namespace

Inputs inputs_of(TRITONBACKEND_Request* request, const std::vector<ExpectedInput>& expected) {
  Inputs found(expected.size());
  const uint32_t inputs = input_count(request);
  for (uint32_t index = 0; index < inputs; ++index) {
    Input input = input_at(request, index);
    const auto model = std::find_if(expected.begin(), expected.end(),
                                    [&](const ExpectedInput& each) { return each.name == input.name; });
    if (model == expected.end()) continue;
    if (!fits(input, *model)) {
      throw BadRequest(Code::invalid_argument,
                       std::string("input '") + input.name + "' has shape " + shown(input.shape, input.rank) + " and " +
                           std::to_string(input.size) + " bytes, expected shape " +
                           shown(model->shape.data(), model->shape.size()) + " and as many bytes as its elements take");
    }
    found[static_cast<size_t>(model - expected.begin())] = input;
  }
  return found;
}

std::string shapes_of(TRITONBACKEND_Request* request, const std::vector<ExpectedInput>& expected, bool with_last_open) {
  std::vector<std::string> shapes(expected.size());
  const uint32_t inputs = input_count(request);
  for (uint32_t index = 0; index < inputs; ++index) {
    const Input input = input_at(request, index);
    const auto model = std::find_if(expected.begin(), expected.end(),
                                    [&](const ExpectedInput& each) { return each.name == input.name; });
    if (model == expected.end() || input.rank == 0) continue;
    std::string& text = shapes[static_cast<size_t>(model - expected.begin())];
    std::vector<int64_t> extents(input.shape + 1, input.shape + input.rank);
    if (!with_last_open && model->shape.size() == input.rank) {
      const auto open = std::find(model->shape.rbegin(), model->shape.rend() - 1, -1);
      if (open != model->shape.rend() - 1) extents[static_cast<size_t>(model->shape.rend() - 2 - open)] = -1;
    }
    text.assign(reinterpret_cast<const char*>(extents.data()), extents.size() * sizeof extents[0]);
    text += 'i';
  }
  std::string joined;
  for (const std::string& each : shapes) joined += each + ';';
  return joined;
}

namespace {

// Bytes of the longest of so many rows of texts, which precede each by its length; nothing if they are not in one piece
// in the CPU's memory, or not as many. A client may change them meanwhile.
std::optional<uint64_t> longest_row(const Input& texts, uint64_t rows) {
  uint64_t elements = 1;
  for (uint32_t axis = 1; axis < texts.rank; ++axis) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(texts.shape[axis]), &elements)) return {};
  }
  if (texts.buffers != 1 || elements == 0) return {};
  std::vector<Part> parts;
  try {
    append_parts(texts, parts);
  } catch (const Failure&) {  // this request is refused later; others come with it
    return {};
  }
  if (parts.size() != 1) return {};
  const auto* at = static_cast<const char*>(parts[0].at);
  uint64_t left = parts[0].size, longest = 0;
  for (uint64_t row = 0; row < rows; ++row) {
    uint64_t bytes = 0;
    for (uint64_t element = 0; element < elements; ++element) {
      uint32_t length = 0;
      if (left < sizeof length) return {};
      std::memcpy(&length, at, sizeof length);
      left -= sizeof length;
      if (left < length) return {};
      at += sizeof length + length;
      left -= length;
      bytes += length;
    }
    longest = std::max(longest, bytes);
  }
  return longest;
}

}  // namespace

// Shapes are not checked yet: what they say may be wrong, but is used for nothing else.
RowCost row_cost(TRITONBACKEND_Request* request, const RequestCost& cost, uint64_t rows) {
  uint64_t own = 0, bytes = 0;
  bool is_of_row = false;
  rows = std::max<uint64_t>(rows, 1);
  const uint32_t inputs = input_count(request);
  for (uint32_t index = 0; index < inputs; ++index) {
    const Input input = input_at(request, index);
    bytes += input.size;
    if (cost.input != input.name) continue;
    const auto axis = static_cast<uint64_t>(cost.axis.value_or(0));
    if (cost.axis && axis < input.rank) {
      own = static_cast<uint64_t>(std::max<int64_t>(input.shape[axis], 0));
      is_of_row = true;
    } else if (const auto longest = input.dtype == kBytes ? longest_row(input, rows) : std::nullopt) {
      own = *longest;
      is_of_row = true;
    } else {
      own = input.size / std::max<uint64_t>(input.dtype == kBytes ? 1 : item_size(input.dtype), 1);
    }
  }
  if (cost.input.empty()) own = bytes;
  const uint64_t of_row = is_of_row ? own : own / rows + (own % rows != 0);
  return {std::clamp<uint64_t>(of_row, 1, UINT32_MAX), std::min<uint64_t>(bytes / rows, UINT32_MAX)};
}

void append_parts(const Input& input, std::vector<Part>& parts) {
  uint64_t sum = 0;
  for (uint32_t index = 0; index < input.buffers; ++index) {
    Part part{};
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_InputBuffer(input.handle, index, &part.at, &part.size, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU) {
      throw BadRequest(Code::unsupported, std::string("input '") + input.name +
                                              "' is in GPU memory, which the native proxy cannot read; bind the model "
                                              "with proxy=\"python\"");
    }
    parts.push_back(part);
    sum += part.size;
  }
  if (sum != input.size) {
    throw BadRequest(Code::invalid_argument, std::string("input '") + input.name + "' is incomplete");
  }
}

bool is_real(TRITONBACKEND_Request* request, const std::string& ready) {
  const uint32_t inputs = input_count(request);
  for (uint32_t index = 0; index < inputs; ++index) {
    const Input input = input_at(request, index);
    if (ready != input.name) continue;
    std::vector<Part> parts;
    append_parts(input, parts);
    for (const Part& part : parts) {
      const auto* first = static_cast<const char*>(part.at);
      if (std::any_of(first, first + part.size, [](char each) { return each != 0; })) return true;
    }
  }
  return false;
}

}  // namespace pytriton
