// A mutex that is held for moments: who finds it taken spins a while before he sleeps, as it would take longer to wake.
#pragma once

#include <pthread.h>

namespace pytriton {

class BriefMutex {
 public:
  BriefMutex() = default;
  ~BriefMutex() { pthread_mutex_destroy(&mutex_); }
  BriefMutex(const BriefMutex&) = delete;
  BriefMutex& operator=(const BriefMutex&) = delete;

  // By the names that std::lock_guard calls them by.
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

}  // namespace pytriton
