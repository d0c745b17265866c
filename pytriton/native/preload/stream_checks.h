// What the preloaded library has to know of models for gRPC streams.
#pragma once

extern "C" struct TRITONSERVER_Server;

namespace pytriton {

// Notes that a model was loaded.
void note_loaded(TRITONSERVER_Server* server, const char* model);

}  // namespace pytriton
