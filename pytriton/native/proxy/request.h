// One inference request, from when the server hands it over until it is answered, counted and given back.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "../frames/handles.h"
#include "model.h"

namespace pytriton {

uint64_t now_ns();  // of the clock that the server's statistics are in

// When what happened to a batch.
struct Times {
  uint64_t start = now_ns();
  uint64_t compute_start = 0, compute_end = 0;
};

class Request {
 public:
  // Takes the request over. Requests that are answered after the batch was handed over need a factory of responses.
  Request(TRITONBACKEND_Request* request, TRITONBACKEND_ModelInstance* instance, bool needs_factory) noexcept;
  // A request without a last response fails.
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  TRITONBACKEND_Request* request() const { return request_; }
  // Another instance than the one that was handed the request answers it.
  void assign(TRITONBACKEND_ModelInstance* instance) { instance_ = instance; }
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  bool is_done() const { return done_; }  // whether the last response was sent, or none is to be any more
  bool is_cancelled() const;
  bool wants(const Output& output, size_t outputs) const;

  // The next response, to be sent: begun anew, ...
  void begin();
  // ... given outputs, of which this is the memory (null if it has no bytes), ...
  char* add(const Output& output, const int64_t* shape, uint32_t rank, uint64_t size);
  // ... or made an error, which is a request's last response.
  void fail(Code code, const std::string& message) noexcept;
  bool has_failed() const { return failed_; }

  void send(bool last) noexcept;
  // No response follows: nothing is sent any more, and end() tells the server so.
  void stop() noexcept;
  void end() noexcept;
  // Has the server count the request. Before its last response is sent, so that whoever has got that finds it counted.
  void count(const Times& times) noexcept;

 private:
  TRITONBACKEND_Request* request_;
  TRITONBACKEND_ModelInstance* instance_;
  const std::chrono::steady_clock::time_point arrived_ = std::chrono::steady_clock::now();
  FactoryPointer factory_;
  ResponsePointer response_;
  ErrorPointer error_;
  bool done_ = false, stopped_ = false, failed_ = false, counted_ = false;
};

using Requests = std::vector<std::shared_ptr<Request>>;

// Counts the requests of a batch, and sends what they were given as their last responses.
void finish(const Requests& requests, const Times& times);
// Answers them with an error.
void fail(const Requests& requests, const Times& times, Code code, const std::string& message);

}  // namespace pytriton
