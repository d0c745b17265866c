// The functions of the server's C API with which models are called, looked up in the library of a server.
//
// Looked up, and not linked with: the server may be any that the user has, and its functions are not to be seen by
// everything in the user's process.
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

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): each name is needed as a name and as a text
#define PYTRITON_CALLS(CALL)                \
  CALL(ErrorNew)                            \
  CALL(ErrorDelete)                         \
  CALL(ErrorCode)                           \
  CALL(ErrorMessage)                        \
  CALL(InferenceRequestNew)                 \
  CALL(InferenceRequestDelete)              \
  CALL(InferenceRequestCancel)              \
  CALL(InferenceRequestAddInput)            \
  CALL(InferenceRequestAppendInputData)     \
  CALL(InferenceRequestSetId)               \
  CALL(InferenceRequestSetReleaseCallback)  \
  CALL(InferenceRequestSetResponseCallback) \
  CALL(ServerInferAsync)                    \
  CALL(InferenceResponseError)              \
  CALL(InferenceResponseModel)              \
  CALL(InferenceResponseId)                 \
  CALL(InferenceResponseParameterCount)     \
  CALL(InferenceResponseParameter)          \
  CALL(InferenceResponseOutputCount)        \
  CALL(InferenceResponseOutput)             \
  CALL(InferenceResponseDelete)             \
  CALL(ResponseAllocatorNew)                \
  CALL(ResponseAllocatorSetQueryFunction)

// The functions, by their names without the prefix.
struct Calls {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name takes none
#define PYTRITON_MEMBER(name) decltype(&TRITONSERVER_##name) name = nullptr;
  PYTRITON_CALLS(PYTRITON_MEMBER)
#undef PYTRITON_MEMBER

  // For what cannot be helped.
  void ignore(TRITONSERVER_Error* error) const {
    if (error) ErrorDelete(error);
  }
};

extern Calls calls;  // those of the one server library of the process

}  // namespace pytriton
