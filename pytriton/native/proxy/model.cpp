#include "model.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "../frames/handles.h"
#include "../frames/tensors.h"
#include "arrivals.h"
#include "model_metrics.h"
#include "request.h"
#include "scheduler.h"

namespace pytriton {

namespace {

struct InstanceName {
  std::string name;
  std::optional<int64_t> gpu;
};

Json server_config(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  const MessagePointer owned(message);
  const char* text = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &text, &size));
  return Json::parse({text, size});
}

uint64_t version_of(TRITONBACKEND_Model* model) {
  uint64_t version = 0;
  check(TRITONBACKEND_ModelVersion(model, &version));
  return version;
}

Json read_endpoint(TRITONBACKEND_Model* model) {
  TRITONBACKEND_ArtifactType type{};
  const char* folder = nullptr;
  check(TRITONBACKEND_ModelRepository(model, &type, &folder));
  const std::string path = std::string(folder) + "/" + std::to_string(version_of(model)) + "/endpoint.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure(Code::unavailable, path + " cannot be read");
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::vector<InstanceName> instances(const Json& config) {
  std::vector<InstanceName> found;
  for (const Json& group : config["instance_group"].list()) {
    std::vector<std::optional<int64_t>> gpus;
    if (const Json* listed = group.find("gpus")) {
      for (const Json& gpu : listed->list()) gpus.emplace_back(gpu.integer());
    }
    if (gpus.empty()) gpus.emplace_back();
    for (int64_t number = 0; number < group["count"].integer(); ++number) {
      for (const auto& gpu : gpus) found.push_back({group["name"].text() + "_" + std::to_string(number), gpu});
    }
  }
  return found;
}

// As people write lists and booleans in Python, whose exceptions these messages end up in.
std::string repr(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return "[" + text + "]";
}

std::string repr(bool value) { return value ? "True" : "False"; }

std::string repr(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> found;
  for (const Json& each : list.list()) found.push_back(each.text());
  return found;
}

template <typename Items>
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const auto& item : items) names.push_back(item.name);
  return names;
}

template <typename Value>
void check_equal(const std::string& model, const std::string& key, const Value& found, const Value& bound) {
  if (found == bound) return;
  throw Failure(Code::invalid_argument, "model '" + model + "' is configured with " + key + " " + repr(found) +
                                            ", but was bound with " + repr(bound) +
                                            "; load it without a configuration of your own, or bind it again");
}

// A client may send another configuration along with a load, which the callables know nothing of.
void check_as_bound(const Model& model, const Json& bound) {
  const size_t wanted = instances(model.config).size();
  const auto callables = static_cast<size_t>(bound["callables"].integer());
  if (wanted > callables) {
    throw Failure(Code::invalid_argument, "model '" + model.name + "' is configured with " + std::to_string(wanted) +
                                              " instances, but was bound with " + std::to_string(callables) +
                                              " callables, one per instance; give bind() a list of " +
                                              std::to_string(wanted) + " callables, or configure " +
                                              std::to_string(callables) + " instances");
  }
  check_equal(model.name, "input", names_of(model.inputs), texts(bound["input"]));
  check_equal(model.name, "output", names_of(model.outputs), texts(bound["output"]));
  check_equal(model.name, "batching", model.batching, bound["batching"].boolean());
  check_equal(model.name, "decoupled", model.decoupled, bound["decoupled"].boolean());
}

// The server reshapes inputs before it hands them over.
ExpectedInput expected_input(const Json& config, bool batching) {
  ExpectedInput input{config["name"].text(), dtype_code(config["data_type"].text()), {}};
  if (batching) input.shape.push_back(-1);
  const Json* reshape = config.find("reshape");
  const Json* dims = reshape ? reshape->find("shape") : config.find("dims");
  if (!dims) return input;
  for (const Json& extent : dims->list()) input.shape.push_back(extent.integer());
  return input;
}

// The options of the batches that the proxy makes; none if the server makes them, or nobody.
std::optional<Json> batcher_options(const Json& config) {
  const Json* parameters = config.find("parameters");
  const Json* batcher = parameters ? parameters->find("pytriton_batcher") : nullptr;
  if (!batcher || config.find("dynamic_batching") || config.find("sequence_batching")) return {};
  Json options = Json::parse((*batcher)["string_value"].text());
  options.object();
  return options;
}

int64_t limited(const Json& options, const char* key, int64_t least, int64_t most) {
  const int64_t value = options[key].integer();
  if (value >= least && value <= most) return value;
  throw FrameError(std::string(key) + " is not from " + std::to_string(least) + " to " + std::to_string(most));
}

BatchPolicy batch_policy(const Json& options, int64_t max_rows) {
  constexpr int64_t kLongest = int64_t{366} * 24 * 3600 * 1'000'000, kMaxCost = int64_t{1} << 62;
  BatchPolicy policy;
  policy.max_rows = static_cast<uint64_t>(max_rows);
  if (const Json* sizes = options.find("preferredBatchSize")) {
    for (const Json& size : sizes->list()) {
      if (size.integer() < 1 || size.integer() > max_rows)
        throw FrameError("a preferred size is beyond max_batch_size");
      policy.preferred_rows.push_back(static_cast<uint64_t>(size.integer()));
    }
  }
  const auto has = [&](const char* key) { return options.find(key) != nullptr; };
  if (has("maxQueueDelayMicroseconds")) {
    const int64_t delay = limited(options, "maxQueueDelayMicroseconds", 0, INT64_MAX);
    policy.delay = std::chrono::microseconds(std::min(delay, kLongest));
  }
  if (has("latencyTargetMicroseconds")) {
    policy.target = std::chrono::microseconds(limited(options, "latencyTargetMicroseconds", 1, kLongest));
    policy.share = options["percentile"].number();
    if (!(policy.share > 0 && policy.share < 1)) throw FrameError("percentile is not between 0 and 1");
  }
  if (has("maxBatchCost")) policy.max_cost = static_cast<uint64_t>(limited(options, "maxBatchCost", 1, kMaxCost));
  return policy;
}

std::optional<RequestCost> request_cost(const Json& options, const Model& model, bool is_needed) {
  const Json* name = options.find("batchCostInput");
  if (!name) return is_needed ? std::make_optional<RequestCost>() : std::nullopt;
  const auto input = std::find_if(model.inputs.begin(), model.inputs.end(),
                                  [&](const ExpectedInput& each) { return each.name == name->text(); });
  if (input == model.inputs.end()) throw FrameError("the model has no input " + name->text());
  RequestCost cost{name->text(), {}};
  if (options.find("batchCostAxis")) {
    cost.axis = limited(options, "batchCostAxis", 1, static_cast<int64_t>(input->shape.size()) - 1);
  }
  return cost;
}

bool has_various_shapes(const Json& config, const std::vector<ExpectedInput>& inputs) {
  const auto varies = [](const ExpectedInput& input) {
    return std::find(input.shape.begin() + 1, input.shape.end(), -1) != input.shape.end();
  };
  const auto is_optional = [](const Json& input) {
    const Json* optional = input.find("optional");
    return optional && optional->boolean();
  };
  const std::vector<Json>& listed = config["input"].list();
  return std::any_of(inputs.begin(), inputs.end(), varies) || std::any_of(listed.begin(), listed.end(), is_optional);
}

void add_scheduler(Model& model, const Json& options, uint64_t version) {
  const BatchPolicy policy = batch_policy(options, model.config["max_batch_size"].integer());
  model.has_various_shapes = has_various_shapes(model.config, model.inputs);
  model.merges_shapes = policy.max_cost != UINT64_MAX;
  model.cost = request_cost(options, model, model.merges_shapes || policy.target.count() > 0);
  const double milliseconds = std::chrono::duration<double, std::milli>(policy.target).count();
  const std::string too_late = "model '" + model.name + "' has too many requests to answer this one within " +
                               repr(milliseconds) + " ms; try again later";
  const auto metrics = std::make_shared<ModelMetrics>(model.config, version, policy);
  model.scheduler = std::make_shared<Scheduler>(
      policy, register_arrivals(model.name), [metrics](const Scheduler::Changes& changes) { metrics->add(changes); },
      [](const Request& request) { return request.is_cancelled(); },
      [too_late](const Requests& requests) { fail(requests, Times(), Code::unavailable, too_late); });
}

// A client may send another configuration along with a load.
void add_batcher(Model& model, uint64_t version) {
  try {
    if (const auto options = batcher_options(model.config)) add_scheduler(model, *options, version);
  } catch (const FrameError& error) {
    throw Failure(Code::invalid_argument, std::string("the parameter pytriton_batcher is wrong: ") + error.what());
  }
}

std::string ready_input(const Json& config) {
  const Json* sequences = config.find("sequence_batching");
  const Json* controls = sequences ? sequences->find("control_input") : nullptr;
  if (!controls) return "";
  for (const Json& input : controls->list()) {
    for (const Json& control : input["control"].list()) {
      if (control["kind"].text() == "CONTROL_SEQUENCE_READY") return input["name"].text();
    }
  }
  return "";
}

}  // namespace

size_t Places::take(const std::string& sockets) {
  constexpr size_t kMaxPlaces = 1 << 16;
  const std::lock_guard lock(mutex_);
  for (size_t place = 0; place < kMaxPlaces; ++place) {
    if (place == taken_.size()) taken_.push_back(false);
    if (taken_[place] || access((sockets + "." + std::to_string(place)).c_str(), F_OK) != 0) continue;
    taken_[place] = true;
    return place;
  }
  throw Failure(Code::unavailable, "there is no worker for another instance; scale the model, or configure fewer");
}

void Places::give_back(size_t place) {
  const std::lock_guard lock(mutex_);
  taken_[place] = false;
}

Model describe(TRITONBACKEND_Model* model) {
  Model result;
  result.config = server_config(model);
  const Json& config = result.config;
  result.name = config["name"].text();
  const Json* rows = config.find("max_batch_size");
  result.batching = rows && rows->integer() > 0;
  for (const Json& input : config["input"].list()) result.inputs.push_back(expected_input(input, result.batching));
  for (const Json& output : config["output"].list()) {
    result.outputs.push_back({output["name"].text(), dtype_code(output["data_type"].text())});
  }
  const Json* policy = config.find("model_transaction_policy");
  const Json* decoupled = policy ? policy->find("decoupled") : nullptr;
  result.decoupled = decoupled && decoupled->boolean();
  result.has_sequences = config.find("sequence_batching") != nullptr;
  result.ready = ready_input(config);
  const Json endpoint = read_endpoint(model);
  check_as_bound(result, endpoint["bound"]);
  result.sockets = endpoint["folder"].text() + "/" + endpoint["prefix"].text();
  if (!endpoint["batches_in_flight"].is(Json::Kind::null)) result.in_flight = endpoint["batches_in_flight"].integer();
  result.traced = endpoint["traced"].boolean();
  if (result.batching && !result.in_flight) add_batcher(result, version_of(model));
  if (endpoint["scales"].boolean()) result.places = std::make_shared<Places>();
  return result;
}

size_t instance_number(const Json& config, const std::string& name, int32_t device) {
  const std::vector<InstanceName> all = instances(config);
  for (size_t number = 0; number < all.size(); ++number) {
    if (all[number].name == name && (!all[number].gpu || *all[number].gpu == device)) return number;
  }
  throw Failure(Code::invalid_argument,
                "instance '" + name + "' on device " + std::to_string(device) +
                    " is in no instance group of the bound configuration; give bind() a list of "
                    "callables, one per instance");
}

}  // namespace pytriton
