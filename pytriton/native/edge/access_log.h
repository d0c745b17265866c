// A line of JSON for each request, in a file or on the standard error output.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "../frames/descriptor.h"
#include "exchange.h"

namespace pytriton::http {

class AccessLog {
 public:
  // A path, or "stderr". Throws Failure if the file cannot be opened.
  explicit AccessLog(const std::string& to);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void close();  // when all is written

  // On any thread; does not wait. Lines that come faster than they can be written are left out, and counted.
  void add(const Request& request, std::string_view route, uint64_t received, int status, uint64_t sent,
           int64_t duration_ns);

 private:
  void run();

  Descriptor file_;
  std::mutex mutex_;  // of the following
  std::condition_variable changed_;
  std::string lines_;
  uint64_t left_out_ = 0;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace pytriton::http
