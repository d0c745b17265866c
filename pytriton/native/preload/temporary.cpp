// Part of the library that is preloaded into servers: notes the temporary folders that they make. Triton makes them
// below /tmp, and a server that is killed leaves them there; by the notes, they are known to be its own.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

// Triton's, and no folder of a library that a model happens to use.
bool is_tritons(const char* path) {
  return std::strncmp(path, "/tmp/python_env_", 16) == 0 || std::strncmp(path, "/tmp/folder", 11) == 0;
}

// Appends the path, with its NUL byte, to the file that the environment names.
void note(const char* path) {
  const char* const notes = std::getenv("PYTRITON_TEMPORARY_FOLDERS");
  const int before = errno;
  const int file = notes == nullptr ? -1 : open(notes, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file >= 0) {
    [[maybe_unused]] const ssize_t written = write(file, path, std::strlen(path) + 1);  // at once: others append, too
    close(file);
  }
  errno = before;
}

}  // namespace

// In place of the C library's, which it calls, and whose parameter has a reserved name.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" __attribute__((visibility("default"))) char* mkdtemp(char* path) {
  const auto make = reinterpret_cast<char* (*)(char*)>(dlsym(RTLD_NEXT, "mkdtemp"));
  char* const made = make(path);
  if (made != nullptr && is_tritons(made)) {
    note(made);
  }
  return made;
}
