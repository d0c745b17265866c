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
  if (input.dtype != expected.dtype || input.rank != expected.shape.size() || input.rank > kMostRank) return false;
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
