// Part of the library that is preloaded into servers: counts the calls that load and unload models. overrides.cpp has
// those that load one.
#include "model_changes.h"

#include "../frames/triton.h"
#include "model_names.h"
#include "preloaded.h"

extern "C" {
struct TRITONSERVER_Server;

PyTritonModelChanges pytriton_model_changes;

#define COUNTED(function, ...)                                                \
  static const auto server_s = pytriton::next<decltype(function)>(#function); \
  const pytriton::ModelChange change;                                         \
  return server_s(__VA_ARGS__)

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server, const char* model) {
  pytriton::remove_model_name(model);
  COUNTED(TRITONSERVER_ServerUnloadModel, server, model);
}

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server* server, const char* model) {
  pytriton::remove_model_name(model);
  COUNTED(TRITONSERVER_ServerUnloadModelAndDependents, server, model);
}

TRITONSERVER_Error* TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server* server) {
  COUNTED(TRITONSERVER_ServerPollModelRepository, server);
}
}
