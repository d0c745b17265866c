#include "parcel.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace pytriton {

namespace {

// The block consists of these, each followed by its texts, and of the outputs' addresses, without padding.
// pytriton/inprocess/response_reader.py knows them, too. All are of the size that their members add up to.
struct Head {
  uint64_t size;
  int64_t version;
  uint32_t flags;
  int32_t error;  // its code, or -1
  uint32_t outputs, parameters;
  uint32_t model_size, id_size, message_size, unused;
};
struct Output {
  uint64_t size, token;
  int64_t device;
  int32_t memory, dtype;
  uint32_t rank, name_size;  // the shape comes first
};
struct Parameter {
  int64_t value;  // or a double's bits
  int32_t type;
  uint32_t name_size, text_size, unused;
};

template <typename Item>
void append(std::string& text, const Item* items, size_t count = 1) {
  text.append(reinterpret_cast<const char*>(items), sizeof(Item) * count);
}

std::string_view seen(const char* text) { return text ? text : ""; }

uint32_t length(std::string_view text) { return static_cast<uint32_t>(text.size()); }

}  // namespace

Parcel::Parcel(TRITONSERVER_InferenceResponse* response, bool final) : final_(final) {
  if (!response) {
    Head head{};
    head.error = -1;
    head.flags = EMPTY;
    append(text_, &head);
    return;
  }
  describe(response);
  calls.ignore(calls.InferenceResponseDelete(response));
}

char* Parcel::hand_over() {
  auto* block = static_cast<char*>(std::malloc(std::max(text_.size(), LEAST_BYTES)));
  if (!block) throw std::bad_alloc();
  Head head{};
  std::memcpy(&head, text_.data(), sizeof head);
  head.size = text_.size();
  if (final_) head.flags |= FINAL;
  std::memcpy(block, text_.data(), text_.size());
  std::memcpy(block, &head, sizeof head);
  for (Memory& memory : memories_) (void)memory.release();  // the block names it
  return block;
}

bool Parcel::is_final(const char* block) {
  Head head{};
  std::memcpy(&head, block, sizeof head);
  return head.flags & FINAL;
}

void Parcel::describe(TRITONSERVER_InferenceResponse* response) {
  Head head{};
  head.error = -1;
  const char *model = nullptr, *id = nullptr;
  calls.ignore(calls.InferenceResponseModel(response, &model, &head.version));
  calls.ignore(calls.InferenceResponseId(response, &id));
  std::string_view message;
  if (TRITONSERVER_Error* error = calls.InferenceResponseError(response)) {  // stays the response's
    head.error = calls.ErrorCode(error);
    message = seen(calls.ErrorMessage(error));
  } else {
    calls.ignore(calls.InferenceResponseOutputCount(response, &head.outputs));
  }
  calls.ignore(calls.InferenceResponseParameterCount(response, &head.parameters));
  head.model_size = length(seen(model));
  head.id_size = length(seen(id));
  head.message_size = length(message);
  append(text_, &head);
  text_.append(seen(model)).append(seen(id)).append(message);
  std::vector<uint64_t> bases;
  if (head.error < 0) bases = describe_outputs(response);
  describe_parameters(response);
  append(text_, bases.data(), bases.size());
}

std::vector<uint64_t> Parcel::describe_outputs(TRITONSERVER_InferenceResponse* response) {
  std::vector<uint64_t> bases;
  uint32_t count = 0;
  calls.ignore(calls.InferenceResponseOutputCount(response, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    const int64_t* shape = nullptr;
    const void* base = nullptr;
    void* user = nullptr;
    uint64_t rank = 0;
    Output output{};
    TRITONSERVER_DataType dtype{};
    TRITONSERVER_MemoryType memory{};
    calls.ignore(calls.InferenceResponseOutput(response, index, &name, &dtype, &shape, &rank, &base, &output.size,
                                               &memory, &output.device, &user));
    if (auto* buffer = static_cast<Buffer*>(user)) {
      output.token = buffer->token;
      if (buffer->memory) memories_.push_back(std::move(buffer->memory));
    }
    bases.push_back(reinterpret_cast<uint64_t>(base));
    output.memory = memory;
    output.dtype = dtype;
    output.rank = static_cast<uint32_t>(rank);
    output.name_size = length(seen(name));
    append(text_, &output);
    append(text_, shape, rank);
    text_.append(seen(name));
  }
  return bases;
}

void Parcel::describe_parameters(TRITONSERVER_InferenceResponse* response) {
  uint32_t count = 0;
  calls.ignore(calls.InferenceResponseParameterCount(response, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    const void* value = nullptr;
    TRITONSERVER_ParameterType type{};
    calls.ignore(calls.InferenceResponseParameter(response, index, &name, &type, &value));
    std::string_view text;
    Parameter parameter{};
    parameter.type = type;
    if (type == TRITONSERVER_PARAMETER_STRING) text = seen(static_cast<const char*>(value));
    if (type == TRITONSERVER_PARAMETER_BOOL) parameter.value = *static_cast<const bool*>(value);
    if (type == TRITONSERVER_PARAMETER_INT || type == TRITONSERVER_PARAMETER_DOUBLE) {
      std::memcpy(&parameter.value, value, sizeof parameter.value);
    }
    parameter.name_size = length(seen(name));
    parameter.text_size = length(text);
    append(text_, &parameter);
    text_.append(seen(name)).append(text);
  }
}

}  // namespace pytriton
