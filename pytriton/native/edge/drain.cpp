#include "drain.h"

#include <mutex>
#include <utility>
#include <vector>

namespace pytriton::http {

namespace {
struct Hooks {
  std::mutex mutex;
  std::vector<std::function<void()>> all;
};
Hooks& hooks() {
  static auto* const only = new Hooks;  // is used while the process ends
  return *only;
}
}  // namespace

void on_drain(std::function<void()> hook) {
  const std::lock_guard<std::mutex> lock(hooks().mutex);
  hooks().all.push_back(std::move(hook));
}

void call_drain_hooks() {
  const std::lock_guard<std::mutex> lock(hooks().mutex);
  for (const auto& hook : hooks().all) hook();
}

}  // namespace pytriton::http
