// Who calls the functions of the preloaded library: the server's program, in which its endpoints are, or a library.
#pragma once

#include <dlfcn.h>
#include <sys/auxv.h>

#include <cstdint>

namespace pytriton {

// Where the program is in memory; null if that is not known.
inline void* beginning_of_program() {
  static void* const program = [] {
    Dl_info found{};
    return dladdr(reinterpret_cast<void*>(getauxval(AT_ENTRY)), &found) ? found.dli_fbase : nullptr;  // NOLINT
  }();
  return program;
}

// How far an address is from the beginning of the program; 0 if it is not in it.
inline uintptr_t offset_in_program(void* address) {
  void* const program = beginning_of_program();
  Dl_info found{};
  if (!program || !dladdr(address, &found) || found.dli_fbase != program) return 0;
  return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(program);
}

inline bool is_in_program(void* address) { return offset_in_program(address) != 0; }

}  // namespace pytriton
