// Requests that are on their way to a model's scheduler. A request that the edge has read, or a program in the server's
// process has sent, passes through the server first; a batch need not leave without it.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pytriton {

// Of all versions of a model. Never deleted. For any thread.
class Arrivals {
 public:
  // Called before a request is given to the server, ...
  void announce() { announced_.fetch_add(1, std::memory_order_relaxed); }
  // ... and if the server refuses it.
  void withdraw() { arrive(1); }

  // The scheduler has got requests; how many of them were announced. Steps of ensembles are not.
  int64_t arrive(int64_t requests) {
    int64_t announced = announced_.load(std::memory_order_relaxed);
    int64_t known = 0;
    do known = std::min(requests, announced);
    while (known > 0 && !announced_.compare_exchange_weak(announced, announced - known));
    return known;
  }

  // Requests that were announced and have not arrived.
  int64_t count() const { return announced_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> announced_{0};
};

// The arrivals of a model; null if it has no scheduler. The library of the native proxy exports this.
extern "C" __attribute__((visibility("default"))) Arrivals* pytriton_arrivals(const char* model);

// The same, for other libraries in the server's process, whether the native proxy is loaded or not.
inline Arrivals* find_arrivals(const char* model) {
  using Find = Arrivals*(const char*);
  using Clock = std::chrono::steady_clock;
  static std::atomic<Find*> found{nullptr};
  static std::atomic<Clock::rep> next_look{0};
  if (Find* const find = found.load(std::memory_order_relaxed)) return find(model);
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (now < next_look.load(std::memory_order_relaxed)) return nullptr;
  void* const library = dlopen("libtriton_pytriton.so", RTLD_LAZY | RTLD_NOLOAD);
  auto* const find = library ? reinterpret_cast<Find*>(dlsym(library, "pytriton_arrivals")) : nullptr;
  if (find) {
    found.store(find, std::memory_order_relaxed);
    return find(model);
  }
  next_look.store(now + Clock::duration(std::chrono::milliseconds(100)).count(), std::memory_order_relaxed);
  return nullptr;
}

}  // namespace pytriton
