#include "instance.h"

#include "handles.h"
#include "request.h"
#include "streams.h"

namespace pytriton {

namespace {

// Requests that the server made for sequences without one get a response without outputs.
void answer_made(const Calls& calls) {
  for (const auto& call : calls) {
    call->count(Times());
    call->send(true);
  }
}

}  // namespace

Instance::Instance(TRITONBACKEND_ModelInstance* handle, const Description& model) : handle_(handle), model_(model) {
  const char* name = nullptr;
  int32_t device = 0;
  check(TRITONBACKEND_ModelInstanceName(handle, &name));
  check(TRITONBACKEND_ModelInstanceDeviceId(handle, &device));
  const size_t number = instance_number(model.config, name, device);
  auto link = std::make_unique<Link>(model.sockets + "." + std::to_string(number), model.name, name);
  if (model.in_flight) {
    batches_ = std::make_unique<Streams>(std::move(link), model, handle, *model.in_flight);
  } else {
    batches_ = std::make_unique<Turns>(std::move(link), model, handle);
  }
}

void Instance::execute(TRITONBACKEND_Request** requests, uint32_t count) {
  Calls calls, made;
  calls.reserve(count);
  made.reserve(count);
  for (uint32_t index = 0; index < count; ++index) {
    auto call = std::make_shared<Call>(requests[index], handle_, model_.in_flight.has_value());
    bool real = true;
    try {
      real = model_.ready.empty() || is_real(requests[index], model_.ready);
    } catch (const std::exception&) {  // encoding it fails as well, and tells
    }
    (real ? calls : made).push_back(std::move(call));
  }
  if (!calls.empty()) {
    try {
      batches_->execute(std::move(calls));
    } catch (const std::exception& error) {  // the calls fail as they are left
      log_warning(error.what());
    }
  }
  answer_made(made);
}

}  // namespace pytriton
