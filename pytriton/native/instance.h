// One instance of a bound model: what the server's calls of our functions come down to.
#pragma once

#include <memory>

#include "description.h"
#include "turns.h"

namespace pytriton {

class Instance {
 public:
  // Connects to the worker. Throws Failure.
  Instance(TRITONBACKEND_ModelInstance* handle, const Description& model);

  // Takes the requests over. Throws nothing once that has begun.
  void execute(TRITONBACKEND_Request** requests, uint32_t count);

 private:
  TRITONBACKEND_ModelInstance* handle_;
  const Description& model_;
  std::unique_ptr<Batches> batches_;
};

}  // namespace pytriton
