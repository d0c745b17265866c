// Errors of models, as /predict has them: an object of JSON with a status (pytriton/rest/errors.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../edge/exchange.h"
#include "../kserve/inference.h"

namespace pytriton::http {

// A value that does not fit.
struct Problem {
  std::vector<std::string> path;  // names and indices, as JSON
  std::string expected, got;
};

constexpr size_t kMostErrorBytes = 16 << 10;

struct PredictError {
  int status = 500;
  std::string code = "INTERNAL", message;
  std::vector<Problem> problems;
  size_t more = 0;            // problems beyond those
  bool is_temporary = false;  // the client may try again soon

  // Of at most kMostErrorBytes: problems are left out, and the message is cut, as the application does.
  std::string json() const;
};

Response make_error(const PredictError& error, const std::string& request_id);

// What the client gets of an error: the messages of exceptions may be for the log alone.
PredictError shown(PredictError error, const std::string& request_id);

PredictError error_of(const Failure& failure);

// The error of a request with some of the instances, which it names.
PredictError error_of_instances(const Failure& failure, const std::vector<size_t>& rows);

PredictError too_many_requests(size_t in_progress);
PredictError too_late(std::string_view model, int64_t timeout_ns);

// Whether the server refused a request because the model's queue is full.
bool is_queue_full(const Failure& failure);

}  // namespace pytriton::http
