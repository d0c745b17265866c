#include "models.h"

#include <dlfcn.h>

#include <algorithm>

#include "../frames/json.h"
#include "../preload/model_changes.h"
#include "traffic.h"

namespace pytriton::http {

namespace {

const PyTritonModelChanges* model_changes() {
  static const auto* changes = static_cast<const PyTritonModelChanges*>(dlsym(RTLD_DEFAULT, "pytriton_model_changes"));
  return changes;
}

const Json* member(const Json& object, const char* name) {
  const Json* found = object.find(name);
  return found && !found->is(Json::Kind::null) ? found : nullptr;
}

std::vector<Tensor> tensors(const Json& config, const char* name) {
  std::vector<Tensor> found;
  const Json* list = member(config, name);
  if (!list) return found;
  for (const Json& each : list->list()) {
    Tensor& tensor = found.emplace_back();
    if (const Json* value = member(each, "name")) tensor.name = value->text();
    if (const Json* value = member(each, "data_type")) {
      std::string dtype = value->text();  // TYPE_FP32; the server's function takes FP32
      dtype.erase(0, dtype.find('_') + 1);
      tensor.dtype = TRITONSERVER_StringToDataType(dtype == "STRING" ? "BYTES" : dtype.c_str());
    }
    if (const Json* value = member(each, "dims"))
      for (const Json& extent : value->list()) tensor.dims.push_back(extent.integer());
    if (const Json* value = member(each, "optional")) tensor.optional = value->boolean();
    if (const Json* reshape = member(each, "reshape")) {
      const Json* shape = member(*reshape, "shape");
      tensor.is_scalar = tensor.dims == std::vector<int64_t>{1} && (!shape || shape->list().empty());
    }
  }
  return found;
}

const Tensor* find_tensor(const std::vector<Tensor>& tensors, std::string_view name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& each) { return each.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

// The versions of a model have one configuration, but each passes requests on by itself.
bool is_only_version(TRITONSERVER_Server* server, const std::string& name, int64_t version) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONSERVER_ServerModelMetadata(server, name.c_str(), -1, &message));
  const MessagePointer owner(message);
  const char* base = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  const Json metadata = Json::parse({base, size});
  const auto& versions = metadata["versions"].list();
  return versions.size() == 1 && versions.front().text() == std::to_string(version);
}

}  // namespace

const Tensor* Model::input(std::string_view input_name) const { return find_tensor(inputs, input_name); }
const Tensor* Model::output(std::string_view output_name) const { return find_tensor(outputs, output_name); }

Model parse_model(std::string_view config) {
  const Json json = Json::parse(config);
  Model model;
  if (const Json* name = member(json, "name")) model.name = name->text();
  if (const Json* most = member(json, "max_batch_size")) model.max_batch_size = most->integer();
  if (const Json* policy = member(json, "model_transaction_policy"))
    if (const Json* decoupled = member(*policy, "decoupled")) model.decoupled = decoupled->boolean();
  model.inputs = tensors(json, "input");
  model.outputs = tensors(json, "output");
  if (const Json* parameters = member(json, "parameters")) {
    for (const auto& [name, value] : parameters->object())
      if (const Json* text = member(value, "string_value")) model.parameters[name] = text->text();
  }
  return model;
}

Models::Models(TRITONSERVER_Server* server) : server_(server) {}

std::shared_ptr<const Model> Models::find(const std::string& name, int64_t version) {
  const PyTritonModelChanges* changes = model_changes();
  if (!changes) return fetch(name, version);
  const uint64_t ended = changes->ended, begun = changes->begun;  // in this order: no call ends unseen in between
  if (begun != ended) return fetch(name, version);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (changes_ == begun) {
      const auto found = models_.find({name, version});
      if (found != models_.end()) return found->second;
    }
  }
  auto model = fetch(name, version);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begun > changes_) {
    models_.clear();
    changes_ = begun;
  }
  if (changes_ == begun && changes->begun == begun) models_[{name, version}] = model;
  return model;
}

std::shared_ptr<const Model> Models::find_known(const std::string& name, int64_t version) {
  const PyTritonModelChanges* changes = model_changes();
  if (!changes || changes->begun == changes->ended) {
    try {
      return find(name, version);
    } catch (const Failure&) {
      return nullptr;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find({name, version});
  return found == models_.end() ? nullptr : found->second;
}

std::shared_ptr<const Model> Models::fetch(const std::string& name, int64_t version) const {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONSERVER_ServerModelConfig(server_, name.c_str(), version, 1, &message));
  const MessagePointer owner(message);
  const char* base = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  auto model = std::make_shared<Model>(parse_model({base, size}));
  if (const auto file = model->parameters.find(kTrafficParameter); file != model->parameters.end()) {
    const auto traffic = find_traffic(file->second);
    if (traffic && traffic->model() == name && is_only_version(server_, name, traffic->version()))
      model->traffic = traffic;
  }
  return model;
}

Models& models_of(TRITONSERVER_Server* server) {
  static Models models(server);  // the process has one server
  return models;
}

}  // namespace pytriton::http
