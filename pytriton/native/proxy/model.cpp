#include "model.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "../frames/handles.h"
#include "../frames/tensors.h"

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

Json endpoint(TRITONBACKEND_Model* model) {
  TRITONBACKEND_ArtifactType type{};
  const char* folder = nullptr;
  uint64_t version = 0;
  check(TRITONBACKEND_ModelRepository(model, &type, &folder));
  check(TRITONBACKEND_ModelVersion(model, &version));
  const std::string path = std::string(folder) + "/" + std::to_string(version) + "/endpoint.json";
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
std::string shown(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return "[" + text + "]";
}

std::string shown(bool value) { return value ? "True" : "False"; }

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
  throw Failure(Code::invalid_argument, "model '" + model + "' is configured with " + key + " " + shown(found) +
                                            ", but was bound with " + shown(bound) +
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
  constexpr size_t kMostPlaces = 1 << 16;
  const std::lock_guard lock(mutex_);
  for (size_t place = 0; place < kMostPlaces; ++place) {
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
  const Json told = endpoint(model);
  check_as_bound(result, told["bound"]);
  result.sockets = told["folder"].text() + "/" + told["prefix"].text();
  if (!told["batches_in_flight"].is(Json::Kind::null)) result.in_flight = told["batches_in_flight"].integer();
  result.traced = told["traced"].boolean();
  if (told["scales"].boolean()) result.places = std::make_shared<Places>();
  return result;
}

size_t instance_number(const Json& config, const std::string& name, int32_t device) {
  const std::vector<InstanceName> all = instances(config);
  for (size_t number = 0; number < all.size(); ++number) {
    if (all[number].name == name && (!all[number].gpu || *all[number].gpu == device)) return number;
  }
  throw Failure(Code::invalid_argument, "instance '" + name + "' on device " + std::to_string(device) +
                                            " is in no instance group of the configuration");
}

}  // namespace pytriton
