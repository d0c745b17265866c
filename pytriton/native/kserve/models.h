// What the edge knows of the server's models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../edge/server_functions.h"

namespace pytriton::http {

struct Tensor {
  std::string name;
  TRITONSERVER_DataType dtype{};
  std::vector<int64_t> dims;  // without the batch axis; -1: any extent
  bool optional = false;
  bool is_scalar = false;  // the model knows it without its only dimension
};

class Traffic;

// A model's configuration. It does not change; a model that is loaded again has another.
struct Model {
  std::string name;
  int64_t max_batch_size = 0;  // 0: no batch axis
  bool decoupled = false;
  std::vector<Tensor> inputs, outputs;
  std::map<std::string, std::string, std::less<>> parameters;  // of the configuration, such as a typed function's
  std::shared_ptr<Traffic> traffic;                            // of a model that passes its requests on

  const Tensor* input(std::string_view name) const;
  const Tensor* output(std::string_view name) const;
};

// Parses a configuration as the server writes it. Throws FrameError.
Model parse_model(std::string_view config);

// Configurations of the server's models, kept until a model is loaded or unloaded.
class Models {
 public:
  explicit Models(TRITONSERVER_Server* server);

  // Throws Failure if there is no such model, or if it is not ready. Version -1: that which the server chooses.
  std::shared_ptr<const Model> find(const std::string& name, int64_t version);

  // As find(), but null if there is none. While models are loaded or unloaded, it is what was known before, if that is
  // known: reading all configurations again for each request would take longer than most requests.
  std::shared_ptr<const Model> find_known(const std::string& name, int64_t version);

 private:
  std::shared_ptr<const Model> fetch(const std::string& name, int64_t version) const;

  TRITONSERVER_Server* server_;
  std::mutex mutex_;
  uint64_t changes_ = 0;  // calls that had loaded or unloaded models when the first of `models_` was fetched
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<const Model>> models_;
};

// Those of the process' server.
Models& models_of(TRITONSERVER_Server* server);

}  // namespace pytriton::http
