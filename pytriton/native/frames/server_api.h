// The functions of the server's C API that send requests and read responses.
//
// They are looked up in the server's library at run time: the user may have another server, and other libraries of the
// user's process must not see the server's functions.
#pragma once

#include "triton.h"

extern "C" {
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_InferenceResponse;
struct TRITONSERVER_ResponseAllocator;
struct TRITONSERVER_Server;

using TRITONSERVER_ReleaseFn = void (*)(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* user);
using TRITONSERVER_CompleteFn = void (*)(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user);
using TRITONSERVER_AllocateFn = TRITONSERVER_Error* (*)(TRITONSERVER_ResponseAllocator*, const char* tensor,
                                                        size_t size, TRITONSERVER_MemoryType memory, int64_t device,
                                                        void* user, void** base, void** buffer_user,
                                                        TRITONSERVER_MemoryType* actual_memory, int64_t* actual_device);
using TRITONSERVER_FreeFn = TRITONSERVER_Error* (*)(TRITONSERVER_ResponseAllocator*, void* base, void* buffer_user,
                                                    size_t size, TRITONSERVER_MemoryType memory, int64_t device);
using TRITONSERVER_StartFn = TRITONSERVER_Error* (*)(TRITONSERVER_ResponseAllocator*, void* user);
using TRITONSERVER_QueryFn = TRITONSERVER_Error* (*)(TRITONSERVER_ResponseAllocator*, void* user, const char* tensor,
                                                     size_t* size, TRITONSERVER_MemoryType* memory, int64_t* device);

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** request,
                                                     TRITONSERVER_Server* server, const char* model, int64_t version);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest* request);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request, const char* name,
                                                          TRITONSERVER_DataType dtype, const int64_t* shape,
                                                          uint64_t rank);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest* request,
                                                                 const char* name, const void* base, size_t size,
                                                                 TRITONSERVER_MemoryType memory, int64_t device);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest* request, const char* id);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest* request,
                                                                    TRITONSERVER_ReleaseFn release, void* user);
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest* request,
                                                                     TRITONSERVER_ResponseAllocator* allocator,
                                                                     void* allocator_user,
                                                                     TRITONSERVER_CompleteFn complete, void* user);
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server* server, TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace* trace);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse* response, const char** name,
                                                        int64_t* version);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse* response, const char** id);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse* response,
                                                                 uint32_t* count);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse* response, uint32_t index,
                                                            const char** name, TRITONSERVER_ParameterType* type,
                                                            const void** value);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse* response,
                                                              uint32_t* count);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(TRITONSERVER_InferenceResponse* response, uint32_t index,
                                                         const char** name, TRITONSERVER_DataType* dtype,
                                                         const int64_t** shape, uint64_t* rank, const void** base,
                                                         size_t* size, TRITONSERVER_MemoryType* memory, int64_t* device,
                                                         void** buffer_user);
TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response);
TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator** allocator,
                                                      TRITONSERVER_AllocateFn allocate, TRITONSERVER_FreeFn free,
                                                      TRITONSERVER_StartFn start);
TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(TRITONSERVER_ResponseAllocator* allocator,
                                                                   TRITONSERVER_QueryFn query);
}

namespace pytriton {

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): each name is used as an identifier and as text
#define PYTRITON_SERVER_API(FUNCTION)           \
  FUNCTION(ErrorNew)                            \
  FUNCTION(ErrorDelete)                         \
  FUNCTION(ErrorCode)                           \
  FUNCTION(ErrorMessage)                        \
  FUNCTION(InferenceRequestNew)                 \
  FUNCTION(InferenceRequestDelete)              \
  FUNCTION(InferenceRequestCancel)              \
  FUNCTION(InferenceRequestAddInput)            \
  FUNCTION(InferenceRequestAppendInputData)     \
  FUNCTION(InferenceRequestSetId)               \
  FUNCTION(InferenceRequestSetReleaseCallback)  \
  FUNCTION(InferenceRequestSetResponseCallback) \
  FUNCTION(ServerInferAsync)                    \
  FUNCTION(InferenceResponseError)              \
  FUNCTION(InferenceResponseModel)              \
  FUNCTION(InferenceResponseId)                 \
  FUNCTION(InferenceResponseParameterCount)     \
  FUNCTION(InferenceResponseParameter)          \
  FUNCTION(InferenceResponseOutputCount)        \
  FUNCTION(InferenceResponseOutput)             \
  FUNCTION(InferenceResponseDelete)             \
  FUNCTION(ResponseAllocatorNew)                \
  FUNCTION(ResponseAllocatorSetQueryFunction)

// The functions, by their names without the prefix.
struct ServerApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name takes no parentheses
#define PYTRITON_MEMBER(name) decltype(&TRITONSERVER_##name) name = nullptr;
  PYTRITON_SERVER_API(PYTRITON_MEMBER)
#undef PYTRITON_MEMBER

  // For errors that nobody can act on.
  void ignore(TRITONSERVER_Error* error) const {
    if (error) ErrorDelete(error);
  }
};

extern ServerApi server_api;  // of the one server library in the process

}  // namespace pytriton
