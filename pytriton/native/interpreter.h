// The interpreter that the server shares its process with, if it does: its functions, and the workers in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "local_channel.h"

namespace pytriton {

extern "C" {
// What the interpreter gives us. The first two take its lock by themselves; the others are its own, of the same names.
struct PytritonInterpreter {
  int (*meet)(uint64_t worker, uint64_t connection);                       // 0 if the worker has gone
  int (*deliver)(uint64_t connection, const char* message, uint64_t size);  // likewise; an empty message is the end
  int (*PyGILState_Ensure)();
  void (*PyGILState_Release)(int state);
  void* (*PyGILState_GetThisThreadState)();
  void* (*PyEval_SaveThread)();
  void (*PyEval_RestoreThread)(void* thread);
};
}

// Connects to the worker that answers at a path; null if none in this process does.
std::shared_ptr<LocalChannel> connect_locally(const std::string& path);

// Hands a frame, or the end, over to a worker. Memory that a frame refers to is the interpreter's if that succeeds.
// Returns false if there is no worker any more.
bool deliver(uint64_t connection, const char* message, size_t size);

}  // namespace pytriton
