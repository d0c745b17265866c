// What the server and the launcher say of a model.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../frames/json.h"
#include "../frames/triton.h"

namespace pytriton {

class Scheduler;

struct Output {
  std::string name;
  uint8_t dtype;
};

struct ExpectedInput {
  std::string name;
  uint8_t dtype;
  std::vector<int64_t> shape;  // of a request's input, with the batch axis if there is one; -1 where any extent will do
};

// The places of workers, whose sockets are numbered, that a model's instances have. For any thread.
class Places {
 public:
  // The lowest that is free and has a worker. Throws Failure if there is none.
  size_t take(const std::string& sockets);
  void give_back(size_t place);

 private:
  std::mutex mutex_;
  std::vector<bool> taken_;
};

// What a row costs: its elements of an input, or the extent along an axis; of texts, the bytes. Without an input, the
// bytes of all.
struct RequestCost {
  std::string input;
  std::optional<int64_t> axis;
};

struct Model {
  std::string name;
  std::vector<ExpectedInput> inputs;  // in the order of frames' indices
  std::vector<Output> outputs;        // likewise
  bool batching = false, decoupled = false;
  bool has_various_shapes = false;   // below the batch axis, or of requests without an input
  bool merges_shapes = false;        // that differ in the last open axis of inputs
  bool has_sequences = false;        // batches of one may not lack a request
  bool traced = false;               // whether the server may trace requests with OpenTelemetry
  std::string ready;                 // input that tells real requests from those that the server made; empty if all are
  std::string sockets;               // path less the ".<instance>" suffix
  std::optional<int64_t> in_flight;  // most batches at once; none is one, answered before the next
  std::shared_ptr<Scheduler> scheduler;  // makes the batches, if the server does not
  std::optional<RequestCost> cost;       // if batches are limited by it, or a target learns from it
  std::shared_ptr<Places> places;        // if the server may add and remove instances while others stay
  Json config;
};

// Throws Failure if the model cannot be served; the message says why.
Model describe(TRITONBACKEND_Model* model);

// Number of an instance's callable, from 0. Throws Failure if there is no such instance.
size_t instance_number(const Json& config, const std::string& name, int32_t device);

}  // namespace pytriton
