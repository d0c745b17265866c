// Counters of requests for models, in a file that the processes of the app read (pytriton/rest/metrics.py has its
// format and its names), so that their metrics and pages count what is answered here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "../frames/spinning_mutex.h"
#include "config.h"

namespace pytriton::http {

class SharedCounters {
 public:
  // Throws Failure if the file cannot be mapped.
  SharedCounters(const std::string& path, Buckets buckets);
  ~SharedCounters();
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  void begin();  // a request of a route of the app has come
  void end();    // it is answered, or left to the edge

  // A request that was answered. `is_of_application`: its route is one of the app.
  void count(bool is_of_application, const std::string& model, int status, int64_t duration_ns, uint64_t received,
             uint64_t sent);

  // A request that is not of the app was refused, with a status of HTTP.
  void refuse(int status);

 private:
  // Where the values of a model begin.
  struct Places {
    size_t answered = 0, latencies = 0, recent = 0;
    std::map<int, size_t> by_status;
  };

  Places& find(const std::string& model);
  size_t place(const std::string& name, size_t width);
  void add(size_t place, double amount = 1) const { values_[place] += amount; }
  void add_in_progress(double amount);

  const Buckets buckets_;
  char* memory_ = nullptr;
  double* values_ = nullptr;
  SpinningMutex mutex_;  // of the following, and of the values
  std::map<std::string, size_t, std::less<>> names_;
  size_t next_ = 0, in_progress_ = 0;
  std::map<int, size_t> refused_;  // places, by status
  std::map<std::string, Places> models_;
};

}  // namespace pytriton::http
