// Counters of requests for models, in a file that the processes of the REST front read (pytriton/rest/counters.py has
// its format, pytriton/rest/metrics.py its names), so that their metrics and pages count what is answered here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "../spinning_mutex.h"

namespace pytriton::http {

class SharedCounters {
 public:
  // Throws Failure if the file cannot be mapped.
  explicit SharedCounters(const std::string& path);
  ~SharedCounters();
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  void begin();  // a request of a route of the REST front has come
  void end();    // it is answered, or left to the front

  // A request that was answered. `is_of_application`: its route is one of the REST front.
  void count(bool is_of_application, const std::string& model, int status, int64_t duration_ns, uint64_t received,
             uint64_t sent);

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

  char* memory_ = nullptr;
  double* values_ = nullptr;
  SpinningMutex mutex_;  // of the following, and of the values
  std::map<std::string, size_t, std::less<>> names_;
  size_t next_ = 0, in_progress_ = 0;
  std::map<std::string, Places> models_;
};

}  // namespace pytriton::http
