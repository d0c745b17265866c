// One instance of a bound model: what the server's calls of our functions come down to.
#pragma once

#include <memory>

#include "model.h"
#include "serial_executor.h"

namespace pytriton {

class Instance {
 public:
  // Connects to the worker. Throws Failure.
  Instance(TRITONBACKEND_ModelInstance* handle, const Model& model);

  // Takes the requests over. Throws nothing once that has begun.
  void execute(TRITONBACKEND_Request** handles, uint32_t count);

 private:
  TRITONBACKEND_ModelInstance* handle_;
  const Model& model_;
  std::unique_ptr<Executor> batches_;
};

}  // namespace pytriton
