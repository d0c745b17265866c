#include "encoded_response.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace pytriton {

namespace {

// The block consists of these structures, each followed by its texts, and of the outputs' addresses, without padding.
// pytriton/inprocess/messages.py decodes it. No structure has padding.
struct ResponseHeader {
  uint64_t size;
  int64_t version;
  uint32_t flags;
  int32_t error;  // the error's code, or -1
  uint32_t outputs, parameters;
  uint32_t model_size, id_size, message_size, unused;
};
struct OutputHeader {
  uint64_t size, token;
  int64_t device;
  int32_t memory, dtype;
  uint32_t rank, name_size;  // the shape precedes the name
};
struct ParameterHeader {
  int64_t value;  // or the bits of a double
  int32_t type;
  uint32_t name_size, text_size, unused;
};

template <typename Item>
void append(std::string& text, const Item* items, size_t count = 1) {
  text.append(reinterpret_cast<const char*>(items), sizeof(Item) * count);
}

std::string_view text_of(const char* text) { return text ? text : ""; }

uint32_t length(std::string_view text) { return static_cast<uint32_t>(text.size()); }

}  // namespace

EncodedResponse::EncodedResponse(TRITONSERVER_InferenceResponse* response, bool final) : final_(final) {
  if (!response) {
    ResponseHeader header{};
    header.error = -1;
    header.flags = kEmpty;
    append(text_, &header);
    return;
  }
  encode(response);
  server_api.ignore(server_api.InferenceResponseDelete(response));
}

char* EncodedResponse::release() {
  auto* block = static_cast<char*>(std::malloc(std::max(text_.size(), kMinBytes)));
  if (!block) throw std::bad_alloc();
  ResponseHeader header{};
  std::memcpy(&header, text_.data(), sizeof header);
  header.size = text_.size();
  if (final_) header.flags |= kFinal;
  std::memcpy(block, text_.data(), text_.size());
  std::memcpy(block, &header, sizeof header);
  for (Memory& memory : memories_) (void)memory.release();  // now the reader of the block owns it
  return block;
}

bool EncodedResponse::is_final(const char* block) {
  ResponseHeader header{};
  std::memcpy(&header, block, sizeof header);
  return header.flags & kFinal;
}

void EncodedResponse::encode(TRITONSERVER_InferenceResponse* response) {
  ResponseHeader header{};
  header.error = -1;
  const char *model = nullptr, *id = nullptr;
  server_api.ignore(server_api.InferenceResponseModel(response, &model, &header.version));
  server_api.ignore(server_api.InferenceResponseId(response, &id));
  std::string_view message;
  // The server's header says that the response owns it, but each call makes a new one.
  const std::unique_ptr<TRITONSERVER_Error, decltype(server_api.ErrorDelete)> error(
      server_api.InferenceResponseError(response), server_api.ErrorDelete);
  if (error) {
    header.error = server_api.ErrorCode(error.get());
    message = text_of(server_api.ErrorMessage(error.get()));
  } else {
    server_api.ignore(server_api.InferenceResponseOutputCount(response, &header.outputs));
  }
  server_api.ignore(server_api.InferenceResponseParameterCount(response, &header.parameters));
  header.model_size = length(text_of(model));
  header.id_size = length(text_of(id));
  header.message_size = length(message);
  append(text_, &header);
  text_.append(text_of(model)).append(text_of(id)).append(message);
  std::vector<uint64_t> bases;
  if (header.error < 0) bases = encode_outputs(response);
  encode_parameters(response);
  append(text_, bases.data(), bases.size());
}

std::vector<uint64_t> EncodedResponse::encode_outputs(TRITONSERVER_InferenceResponse* response) {
  std::vector<uint64_t> bases;
  uint32_t count = 0;
  server_api.ignore(server_api.InferenceResponseOutputCount(response, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    const int64_t* shape = nullptr;
    const void* base = nullptr;
    void* user = nullptr;
    uint64_t rank = 0;
    OutputHeader output{};
    TRITONSERVER_DataType dtype{};
    TRITONSERVER_MemoryType memory{};
    server_api.ignore(server_api.InferenceResponseOutput(response, index, &name, &dtype, &shape, &rank, &base,
                                                         &output.size, &memory, &output.device, &user));
    if (auto* buffer = static_cast<OutputBuffer*>(user)) {
      output.token = buffer->token;
      if (buffer->memory) memories_.push_back(std::move(buffer->memory));
    }
    bases.push_back(reinterpret_cast<uint64_t>(base));
    output.memory = memory;
    output.dtype = dtype;
    output.rank = static_cast<uint32_t>(rank);
    output.name_size = length(text_of(name));
    append(text_, &output);
    append(text_, shape, rank);
    text_.append(text_of(name));
  }
  return bases;
}

void EncodedResponse::encode_parameters(TRITONSERVER_InferenceResponse* response) {
  uint32_t count = 0;
  server_api.ignore(server_api.InferenceResponseParameterCount(response, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    const void* value = nullptr;
    TRITONSERVER_ParameterType type{};
    server_api.ignore(server_api.InferenceResponseParameter(response, index, &name, &type, &value));
    std::string_view text;
    ParameterHeader parameter{};
    parameter.type = type;
    if (type == TRITONSERVER_PARAMETER_STRING) text = text_of(static_cast<const char*>(value));
    if (type == TRITONSERVER_PARAMETER_BOOL) parameter.value = *static_cast<const bool*>(value);
    if (type == TRITONSERVER_PARAMETER_INT || type == TRITONSERVER_PARAMETER_DOUBLE) {
      std::memcpy(&parameter.value, value, sizeof parameter.value);
    }
    parameter.name_size = length(text_of(name));
    parameter.text_size = length(text);
    append(text_, &parameter);
    text_.append(text_of(name)).append(text);
  }
}

}  // namespace pytriton
