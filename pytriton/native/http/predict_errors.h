// Errors of models, as /predict has them: an object of JSON with a status (pytriton/rest/errors.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exchange.h"
#include "inference.h"

namespace pytriton::http {

// A value that does not fit, as the worker's message tells.
struct Problem {
  std::string path;   // names and indices as in JSON, without the brackets
  std::string first;  // if it begins with an index: that, which is a row of the request
  std::string expected, got;
};

struct PredictError {
  int status = 500;
  std::string code = "INTERNAL", message;
  std::vector<Problem> problems;
  bool is_temporary = false;  // the client may try again soon

  std::string json() const;
};

PredictError error_of(const Failure& failure);

// The error of a request with some of the instances, which it names.
PredictError error_of_instances(const Failure& failure, const std::vector<size_t>& rows);

PredictError too_many_requests(size_t in_progress);
PredictError too_late(std::string_view model, int64_t timeout_ns);

// Whether the server refused a request because the model's queue is full.
bool is_queue_full(const Failure& failure);

}  // namespace pytriton::http
