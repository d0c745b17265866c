// A mutex that threads hold for moments: a thread that finds it locked spins before it sleeps, as waking takes longer.
#pragma once

#include <pthread.h>

namespace pytriton {

class SpinningMutex {
 public:
  SpinningMutex() = default;
  ~SpinningMutex() { pthread_mutex_destroy(&mutex_); }
  SpinningMutex(const SpinningMutex&) = delete;
  SpinningMutex& operator=(const SpinningMutex&) = delete;

  // The names that std::lock_guard needs.
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

}  // namespace pytriton
