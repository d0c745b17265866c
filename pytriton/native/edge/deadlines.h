// Calls of what took too long.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace pytriton::http {

class Deadlines;

class Expiring {
 public:
  virtual void expire(const Deadlines& which) = 0;  // on a thread of Deadlines

 protected:
  ~Expiring() = default;
};

// Begins anew with each Deadlines::begin().
class Deadline {
 public:
  Deadline() = default;
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  friend class Deadlines;
  std::weak_ptr<Expiring> owner_;
  int64_t at_ = 0;
  bool is_running_ = false;
  std::list<Deadline*>::iterator place_;
};

// All of the same length, so that the first to begin is the first to end, and a thread that sleeps until that one, or
// for the whole length if there is none, never has to be woken.
class Deadlines {
 public:
  explicit Deadlines(int64_t length_ns) : length_ns_(length_ns) {}

  int64_t length_ns() const { return length_ns_; }
  void begin(Deadline& deadline, std::weak_ptr<Expiring> owner);
  void end(Deadline& deadline);

 private:
  void run();

  const int64_t length_ns_;
  std::mutex mutex_;                       // of the following
  std::list<Deadline*> running_, unused_;  // the places of deadlines that ended are used again
  bool has_thread_ = false;
};

}  // namespace pytriton::http
