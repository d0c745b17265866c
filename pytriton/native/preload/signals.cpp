// Part of the library that is preloaded into servers: they get no handlers for the signals of a crash. Triton's own
// print a stack trace, for which they fork and allocate. After the heap was corrupted, or while malloc's lock is held,
// that waits for ever: a server that has crashed would look alive, and answer nothing.
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "preloaded.h"

namespace {

using Action = struct sigaction;

bool is_crash(int number) {
  switch (number) {
    case SIGABRT:
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
      return true;
    default:
      return false;
  }
}

// Whether whoever launches the server lets it have them.
bool may_handle_crashes() {
  const char* const variable = std::getenv("PYTRITON_CRASH_HANDLERS");
  return variable != nullptr && std::strcmp(variable, "1") == 0;
}

bool is_refused(int number, sighandler_t handler) {
  return is_crash(number) && handler != SIG_DFL && handler != SIG_IGN && !may_handle_crashes();
}

int change(int number, const Action* action, Action* before) {
  static const auto sigaction_s = pytriton::next<int(int, const Action*, Action*)>("sigaction");
  return sigaction_s(number, action, before);
}

}  // namespace

// In place of the C library's, which they call, and whose parameters have reserved names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

__attribute__((visibility("default"))) int sigaction(int number, const Action* action, Action* before) noexcept {
  // A union has both kinds of handlers at one address.
  if (action != nullptr && is_refused(number, action->sa_handler)) return change(number, nullptr, before);
  return change(number, action, before);
}

__attribute__((visibility("default"))) sighandler_t signal(int number, sighandler_t handler) noexcept {
  static const auto signal_s = pytriton::next<sighandler_t(int, sighandler_t)>("signal");
  if (!is_refused(number, handler)) return signal_s(number, handler);
  Action before{};
  return change(number, nullptr, &before) == 0 ? before.sa_handler : SIG_ERR;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
