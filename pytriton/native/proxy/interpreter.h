// The interpreter that the server shares its process with, if it does: its functions, and the workers in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "local_channel.h"

namespace pytriton {

extern "C" {
// What the interpreter gives us: two of ours, and functions of its own, by their names, with `void` for its types.
struct PytritonInterpreter {
  int (*accept)(uint64_t worker, uint64_t connection);  // takes its lock by itself; 0 if the worker has gone
  // An object to be called with a connection's number and a message; an empty message is the end. It returns bytes: the
  // answer, or none if that comes later or never; something else if there is no worker any more.
  void* deliver;
  void* (*PyLong_FromUnsignedLongLong)(unsigned long long);
  void* (*PyByteArray_FromStringAndSize)(const char*, ptrdiff_t);
  void* (*PyObject_CallFunctionObjArgs)(void* callable, ...);
  int (*PyBytes_AsStringAndSize)(void* object, char**, ptrdiff_t*);
  void (*PyErr_Clear)();
  void (*Py_DecRef)(void* object);
  int (*PyGILState_Ensure)();
  void (*PyGILState_Release)(int state);
  void* (*PyGILState_GetThisThreadState)();
  void* (*PyEval_SaveThread)();
  void (*PyEval_RestoreThread)(void* thread);
};

// What it calls, from any of its threads, without its lock: what waits here may wait for a thread that wants it.

// Sets the interpreter that the functions above belong to; null when it ends. The structure has to stay.
void pytriton_set_interpreter(const PytritonInterpreter* python);
// A worker takes connections at a path from now on, or no longer. The interpreter knows it by its number.
void pytriton_listen(const char* path, uint64_t worker);
void pytriton_stop_listening(const char* path);
// A worker's frame; 0 if nobody takes it. Large tensors are read at their addresses, in the frame's order, until this
// returns.
int pytriton_reply(uint64_t connection, const char* message, uint64_t size, const uint64_t* addresses);
// Ends a connection: its worker takes no more batches.
void pytriton_disconnect(uint64_t connection);
// Gives the memory of a large batch back.
void pytriton_free(void* memory);
}

// Connects to the worker that answers at a path; null if none in this process does.
std::shared_ptr<LocalChannel> connect_locally(const std::string& path);

// Hands a frame, or the end, over to a worker. Memory that a frame refers to is the interpreter's if that succeeds.
// `answer` gets the worker's, if it has one at once. Returns false if there is no worker any more.
bool deliver(uint64_t connection, std::string_view message, std::string& answer);

}  // namespace pytriton
