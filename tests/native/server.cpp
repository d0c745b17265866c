#include "server.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "frames/tensors.h"

std::atomic<int> Ticket::open{0}, Ticket::unreleased{0};
ClientLock client_lock;

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};
struct TRITONBACKEND_Input {
  std::vector<int64_t> shape;
  const std::vector<float>& values;
};
struct TRITONBACKEND_Request {
  TicketPointer ticket;
  std::vector<std::string> outputs;
  TRITONBACKEND_Input input;
};
struct TRITONBACKEND_ResponseFactory {
  TicketPointer ticket;
};
struct TRITONBACKEND_Output {
  std::string name;
  TRITONSERVER_DataType dtype;
  std::vector<uint64_t> shape;
  std::vector<char> bytes;
};
struct TRITONBACKEND_Response {
  TicketPointer ticket;
  std::vector<std::unique_ptr<TRITONBACKEND_Output>> outputs;
};

namespace {

void check_output(const TRITONBACKEND_Output& output, const Ticket& ticket) {
  const uint64_t elements = pytriton::count(output.shape.data(), static_cast<unsigned>(output.shape.size()));
  if (output.dtype == pytriton::kBytes) {
    std::string lengths, strings;
    try {
      pytriton::split_strings({output.bytes.data(), output.bytes.size()}, elements, lengths, strings);
    } catch (const std::exception& error) {
      broken(error.what());
    }
    return;
  }
  const uint64_t size = elements * pytriton::item_size(static_cast<uint8_t>(output.dtype));
  if (output.bytes.size() != size) broken("an output's size is that of its shape");
  if (output.name != "y") return;
  if (size != ticket.values.size() * sizeof(float) ||
      std::memcmp(output.bytes.data(), ticket.values.data(), size) != 0) {
    broken("a request gets its own values");
  }
}

void end(Ticket& ticket) {
  if (ticket.is_final) broken("a request has one last response");
  ticket.is_final = true;
  ticket.is_over.store(true, std::memory_order_relaxed);
  Ticket::open.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

void broken(const std::string& rule) {
  std::fprintf(stderr, "broken rule: %s\n", rule.c_str());
  std::abort();
}

TRITONBACKEND_Request* make_request(TicketPointer ticket, std::vector<std::string> outputs) {
  Ticket::unreleased.fetch_add(1, std::memory_order_relaxed);
  const std::vector<float>& values = ticket->values;
  return new TRITONBACKEND_Request{
      std::move(ticket), std::move(outputs), {{1, static_cast<int64_t>(values.size())}, values}};
}

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return new TRITONSERVER_Error{code, message};
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete error; }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }
TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, int, const char* message) {
  std::fprintf(stderr, "%s\n", message);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(TRITONSERVER_InferenceTrace*, const char** context) {
  *context = "";
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*,
                                                                bool, uint64_t, uint64_t, uint64_t, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance*, uint64_t, uint64_t,
                                                                     uint64_t, uint64_t, uint64_t) {
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request*, const char** id) {
  *id = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request*, uint64_t* id) {
  *id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request*, const char** id) {
  *id = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request*, uint32_t* flags) {
  *flags = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request*, uint64_t* timeout) {
  *timeout = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request, bool* cancelled) {
  *cancelled = request->ticket->is_cancelled.load(std::memory_order_relaxed);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request*, uint32_t* count) {
  *count = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request*, uint32_t, const char**,
                                                   TRITONSERVER_ParameterType*, const void**) {
  broken("there is no parameter");
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request*, uint32_t* count) {
  *count = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request, uint32_t,
                                                      TRITONBACKEND_Input** input) {
  *input = &request->input;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  *count = static_cast<uint32_t>(request->outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index, const char** name) {
  *name = request->outputs[index].c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestTrace(TRITONBACKEND_Request*, TRITONSERVER_InferenceTrace** trace) {
  *trace = nullptr;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t) {
  if (!request->ticket->is_final) broken("a request is given back after its last response");
  delete request;
  Ticket::unreleased.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* dtype, const int64_t** shape, uint32_t* rank,
                                                  uint64_t* size, uint32_t* buffers) {
  static const uint8_t kFloats = pytriton::dtype_code("TYPE_FP32");
  if (name) *name = "x";
  if (dtype) *dtype = static_cast<TRITONSERVER_DataType>(kFloats);
  *shape = input->shape.data();
  *rank = static_cast<uint32_t>(input->shape.size());
  if (size) *size = input->values.size() * sizeof(float);
  if (buffers) *buffers = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t, const void** buffer, uint64_t* size,
                                              TRITONSERVER_MemoryType* memory, int64_t* device) {
  *buffer = input->values.data();
  *size = input->values.size() * sizeof(float);
  *memory = TRITONSERVER_MEMORY_CPU;
  *device = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request* request) {
  *response = new TRITONBACKEND_Response{request->ticket, {}};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response** response,
                                                         TRITONBACKEND_ResponseFactory* factory) {
  *response = new TRITONBACKEND_Response{factory->ticket, {}};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  delete response;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t flags,
                                               TRITONSERVER_Error* error) {
  const std::unique_ptr<TRITONBACKEND_Response> owned(response);
  client_lock.take();
  client_lock.give_back();
  Ticket& ticket = *response->ticket;
  if (ticket.is_final) broken("nothing follows the last response");
  ++(error ? ticket.errors : ticket.responses);
  for (const auto& output : response->outputs) {
    if (!error) check_output(*output, ticket);
  }
  if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) end(ticket);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response, TRITONBACKEND_Output** output,
                                                 const char* name, TRITONSERVER_DataType dtype, const int64_t* shape,
                                                 uint32_t rank) {
  for (const auto& each : response->outputs) {
    if (each->name == name) broken("a response has an output once");
  }
  response->outputs.push_back(std::make_unique<TRITONBACKEND_Output>(
      TRITONBACKEND_Output{name, dtype, std::vector<uint64_t>(shape, shape + rank), {}}));
  *output = response->outputs.back().get();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer, uint64_t size,
                                               TRITONSERVER_MemoryType* memory, int64_t* device) {
  output->bytes = std::vector<char>(size);
  *buffer = output->bytes.data();
  *memory = TRITONSERVER_MEMORY_CPU;
  *device = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  *factory = new TRITONBACKEND_ResponseFactory{request->ticket};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  delete factory;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory, bool* cancelled) {
  *cancelled = factory->ticket->is_cancelled.load(std::memory_order_relaxed);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory, uint32_t flags) {
  if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) end(*factory->ticket);
  return nullptr;
}
