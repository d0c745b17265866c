#include "instance.h"

#include "../frames/handles.h"
#include "concurrent_executor.h"
#include "inputs.h"

namespace pytriton {

namespace {

// Requests that the server placeholders for sequences without one get a response without outputs.
void answer_placeholders(const Requests& requests) {
  for (const auto& request : requests) {
    request->count(Times());
    request->send(true);
  }
}

std::string name_of(TRITONBACKEND_ModelInstance* handle) {
  const char* name = nullptr;
  check(TRITONBACKEND_ModelInstanceName(handle, &name));
  return name;
}

size_t number_of(TRITONBACKEND_ModelInstance* handle, const Model& model) {
  if (model.places) return model.places->take(model.sockets);  // names of instances may repeat then
  int32_t device = 0;
  check(TRITONBACKEND_ModelInstanceDeviceId(handle, &device));
  return instance_number(model.config, name_of(handle), device);
}

}  // namespace

Place::Place(TRITONBACKEND_ModelInstance* handle, const Model& model)
    : places_(model.places), number_(number_of(handle, model)) {}

Place::~Place() {
  if (places_) places_->give_back(number_);
}

Instance::Instance(TRITONBACKEND_ModelInstance* handle, const Model& model)
    : handle_(handle), model_(model), place_(handle, model) {
  auto connection = std::make_unique<WorkerConnection>(model.sockets + "." + std::to_string(place_.number()),
                                                       model.name, name_of(handle));
  if (model.scheduler) {
    scheduled_ = std::make_unique<ScheduledExecutor>(std::move(connection), model, handle, *model.scheduler);
  } else if (model.in_flight) {
    batches_ = std::make_unique<ConcurrentExecutor>(std::move(connection), model, handle, *model.in_flight);
  } else {
    batches_ = std::make_unique<SerialExecutor>(std::move(connection), model, handle);
  }
}

void Instance::schedule(TRITONBACKEND_Request** handles, uint32_t count) {
  try {
    std::vector<QueuedRequest> requests;
    requests.reserve(count);
    for (uint32_t index = 0; index < count; ++index) {
      requests.push_back(queued(std::make_shared<Request>(handles[index], handle_, false), model_));
    }
    model_.scheduler->enqueue(std::move(requests));
  } catch (const std::exception& error) {  // the requests fail as they are left
    log_warning(error.what());
  }
  model_.scheduler->park();
}

void Instance::execute(TRITONBACKEND_Request** handles, uint32_t count) {
  if (model_.scheduler) return schedule(handles, count);
  Requests requests, placeholders;
  requests.reserve(count);
  placeholders.reserve(count);
  for (uint32_t index = 0; index < count; ++index) {
    auto request = std::make_shared<Request>(handles[index], handle_, model_.in_flight.has_value());
    bool real = true;
    try {
      real = model_.ready.empty() || is_real(handles[index], model_.ready);
    } catch (const std::exception&) {  // encoding it fails as well, and tells
    }
    (real ? requests : placeholders).push_back(std::move(request));
  }
  if (!requests.empty()) {
    try {
      batches_->execute(std::move(requests));
    } catch (const std::exception& error) {  // the requests fail as they are left
      log_warning(error.what());
    }
  }
  answer_placeholders(placeholders);
}

}  // namespace pytriton
