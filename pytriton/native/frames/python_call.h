// Requests functions of the Python interpreter on threads that it did not start.
//
// While the interpreter finalizes, it ends each thread that asks for its lock, also in the middle of a Python function.
// Up to CPython 3.13 it does so with pthread_exit(), which unwinds the thread's stack. The server does not expect that
// of its threads: the process would abort. Such a thread waits here until the process has ended, as in CPython 3.14.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

namespace pytriton {

template <typename Function, typename... Arguments>
auto call_python(Function* function, Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

}  // namespace pytriton
