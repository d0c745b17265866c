#include "request.h"

#include <algorithm>
#include <cstring>

#include "handles.h"
#include "layout.h"

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

}  // namespace

uint64_t Input::elements() const {
  try {
    return count(reinterpret_cast<const uint64_t*>(shape), rank);
  } catch (const FrameError&) {
    throw BadRequest(Code::invalid_argument, std::string("input '") + name + "' has an impossible shape");
  }
}

std::vector<std::optional<Input>> inputs_of(TRITONBACKEND_Request* request, const std::vector<std::string>& names) {
  std::vector<std::optional<Input>> found(names.size());
  const uint32_t inputs = input_count(request);
  for (uint32_t index = 0; index < inputs; ++index) {
    Input input = input_at(request, index);
    const auto name = std::find(names.begin(), names.end(), input.name);
    if (name == names.end()) continue;
    const uint64_t item = item_size(input.dtype);
    if (input.rank > kMostRank || (input.dtype != kBytes && input.elements() * item != input.size)) {
      throw BadRequest(Code::invalid_argument, std::string("input '") + input.name + "' of " +
                                                   std::to_string(input.size) + " bytes does not fit its shape");
    }
    found[static_cast<size_t>(name - names.begin())] = input;
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
