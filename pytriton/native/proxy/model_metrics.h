// What a model's scheduler adds to the server's metrics.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../frames/json.h"
#include "../frames/triton.h"
#include "scheduler.h"

namespace pytriton {

class ModelMetrics {
 public:
  ModelMetrics(const Json& config, uint64_t version, const BatchPolicy& policy);
  ~ModelMetrics();
  ModelMetrics(const ModelMetrics&) = delete;
  ModelMetrics& operator=(const ModelMetrics&) = delete;

  // For one thread at a time.
  void add(const Scheduler::Changes& changes);

 private:
  void make();
  void add(const std::vector<BatchTimes::Point>& times);

  std::vector<std::pair<std::string, std::string>> labels_;
  bool is_made_ = false;  // with the first report, when the server's own metrics of the model exist
  // Null where the server keeps no metrics. The first is the server's own, which counts requests until the proxy has
  // them; the server deletes it.
  TRITONSERVER_Metric* waiting_ = nullptr;
  std::array<TRITONSERVER_Metric*, kReasons.size()> batches_{};
  // With a target, which a batch may take half of.
  const double target_;
  TRITONSERVER_Metric *refused_ = nullptr, *target_seconds_ = nullptr;
  std::map<uint64_t, TRITONSERVER_Metric*> times_;  // by rows
};

}  // namespace pytriton
