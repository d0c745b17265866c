// One instance of a bound model: what the server's calls of our functions come down to.
#pragma once

#include <memory>

#include "model.h"
#include "scheduled_executor.h"
#include "serial_executor.h"

namespace pytriton {

// The number of a worker's socket, which no other instance has meanwhile.
class Place {
 public:
  Place(TRITONBACKEND_ModelInstance* handle, const Model& model);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  size_t number() const { return number_; }

 private:
  std::shared_ptr<Places> places_;
  size_t number_;
};

class Instance {
 public:
  // Connects to the worker. Throws Failure.
  Instance(TRITONBACKEND_ModelInstance* handle, const Model& model);

  // Takes the requests over. Throws nothing once that has begun.
  void execute(TRITONBACKEND_Request** handles, uint32_t count);

 private:
  void schedule(TRITONBACKEND_Request** handles, uint32_t count);

  TRITONBACKEND_ModelInstance* handle_;
  const Model& model_;
  Place place_;                                   // given back when the connection has ended
  std::unique_ptr<Executor> batches_;             // that the server makes, ...
  std::unique_ptr<ScheduledExecutor> scheduled_;  // ... or the model's scheduler
};

}  // namespace pytriton
