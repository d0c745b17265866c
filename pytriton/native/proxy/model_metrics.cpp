#include "model_metrics.h"

#include <map>
#include <mutex>

#include "../frames/handles.h"

namespace pytriton {

namespace {
using Labels = std::vector<std::pair<std::string, std::string>>;

// The server gives out the family of a name that exists. Deleting it would delete all of it.
TRITONSERVER_MetricFamily* family(TRITONSERVER_MetricKind kind, const char* name, const char* description) {
  static std::mutex mutex;
  static std::map<std::string, TRITONSERVER_MetricFamily*> families;
  const std::lock_guard lock(mutex);
  TRITONSERVER_MetricFamily*& found = families[name];
  if (!found && !ignore(TRITONSERVER_MetricFamilyNew(&found, kind, name, description))) found = nullptr;
  return found;
}

TRITONSERVER_Metric* metric(TRITONSERVER_MetricFamily* family, const Labels& labels) {
  if (!family) return nullptr;
  std::vector<const TRITONSERVER_Parameter*> parameters;
  for (const auto& [name, value] : labels) {
    parameters.push_back(TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_STRING, value.c_str()));
  }
  TRITONSERVER_Metric* made = nullptr;
  if (!ignore(TRITONSERVER_MetricNew(&made, family, parameters.data(), parameters.size()))) made = nullptr;
  for (const TRITONSERVER_Parameter* each : parameters) {
    TRITONSERVER_ParameterDelete(const_cast<TRITONSERVER_Parameter*>(each));
  }
  return made;
}
}  // namespace

ModelMetrics::ModelMetrics(const Json& config, uint64_t version, const BatchPolicy& policy)
    : labels_{{"model", config["name"].text()}, {"version", std::to_string(version)}},
      target_(std::chrono::duration<double>(policy.target).count()) {
  const Json* const tags = config.find("metric_tags");
  if (!tags) return;
  for (const auto& [name, value] : tags->object()) labels_.emplace_back("_" + name, value.text());
}

ModelMetrics::~ModelMetrics() {
  std::vector<TRITONSERVER_Metric*> all(batches_.begin(), batches_.end());
  all.insert(all.end(), {refused_, target_seconds_});
  for (const auto& [rows, each] : times_) all.push_back(each);
  for (TRITONSERVER_Metric* each : all) {
    if (each) ignore(TRITONSERVER_MetricDelete(each));
  }
}

void ModelMetrics::make() {
  waiting_ = metric(family(TRITONSERVER_METRIC_KIND_GAUGE, "nv_inference_pending_request_count",
                           "Instantaneous number of pending requests awaiting execution per-model."),
                    labels_);
  for (size_t reason = 0; reason < kReasons.size(); ++reason) {
    Labels with_reason = labels_;
    with_reason.emplace_back("reason", kReasons[reason]);
    batches_[reason] = metric(family(TRITONSERVER_METRIC_KIND_COUNTER, "pytriton_batch_reason_total",
                                     "Number of batches that left the model's queue, by the reason"),
                              with_reason);
  }
  if (target_ <= 0) return;
  refused_ = metric(family(TRITONSERVER_METRIC_KIND_COUNTER, "pytriton_requests_refused_total",
                           "Number of requests that were refused, as their answers would have been late"),
                    labels_);
  target_seconds_ = metric(family(TRITONSERVER_METRIC_KIND_GAUGE, "pytriton_latency_target_seconds",
                                  "Time within which requests are to be answered"),
                           labels_);
  if (target_seconds_) ignore(TRITONSERVER_MetricSet(target_seconds_, target_));
}

void ModelMetrics::add(const std::vector<BatchTimes::Point>& times) {
  if (times.empty()) return;
  auto before = std::exchange(times_, {});
  for (const BatchTimes::Point& point : times) {
    TRITONSERVER_Metric*& found = times_[point.rows];
    found = std::exchange(before[point.rows], nullptr);
    if (!found) {
      Labels with_rows = labels_;
      with_rows.emplace_back("rows", std::to_string(point.rows));
      found = metric(family(TRITONSERVER_METRIC_KIND_GAUGE, "pytriton_batch_seconds",
                            "Time that batches of so many rows, and less than twice as many, take"),
                     with_rows);
    }
    if (found) ignore(TRITONSERVER_MetricSet(found, point.seconds));
  }
  for (const auto& [rows, forgotten] : before) {
    if (forgotten) ignore(TRITONSERVER_MetricDelete(forgotten));
  }
}

void ModelMetrics::add(const Scheduler::Changes& changes) {
  if (!std::exchange(is_made_, true)) make();
  if (waiting_ && changes.waiting) ignore(TRITONSERVER_MetricIncrement(waiting_, static_cast<double>(changes.waiting)));
  for (size_t reason = 0; reason < batches_.size(); ++reason) {
    if (!batches_[reason] || !changes.batches[reason]) continue;
    ignore(TRITONSERVER_MetricIncrement(batches_[reason], changes.batches[reason]));
  }
  if (refused_ && changes.refused) ignore(TRITONSERVER_MetricIncrement(refused_, changes.refused));
  add(changes.times);
}

}  // namespace pytriton
