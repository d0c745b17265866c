// The functions that the server looks up in a backend. No exception leaves them.
#include <string>

#include "../frames/handles.h"
#include "instance.h"

#define PYTRITON_EXPORT extern "C" __attribute__((visibility("default")))

namespace pytriton {
namespace {

template <typename Body>
TRITONSERVER_Error* guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Failure& failure) {
    return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(failure.code), failure.what());
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
}

Model* description_of(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<Model*>(state);
}

Instance* instance_of(TRITONBACKEND_ModelInstance* instance) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelInstanceState(instance, &state));
  return static_cast<Instance*>(state);
}

}  // namespace
}  // namespace pytriton

using namespace pytriton;

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return guarded([] {
    uint32_t major = 0, minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR) {
      throw Failure(Code::unsupported, "this server's backend API " + std::to_string(major) + "." +
                                           std::to_string(minor) + " is not one that pytriton's backend knows");
    }
  });
}

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    auto description = std::make_unique<Model>(describe(model));
    check(TRITONBACKEND_ModelSetState(model, description.get()));
    static_cast<void>(description.release());  // the server's from here on
  });
}

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return guarded([&] { delete description_of(model); });
}

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* handle) {
  return guarded([&] {
    TRITONBACKEND_Model* model = nullptr;
    check(TRITONBACKEND_ModelInstanceModel(handle, &model));
    auto instance = std::make_unique<Instance>(handle, *description_of(model));
    check(TRITONBACKEND_ModelInstanceSetState(handle, instance.get()));
    static_cast<void>(instance.release());  // the server's from here on
  });
}

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* handle) {
  return guarded([&] { delete instance_of(handle); });
}

PYTRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* handle,
                                                                       TRITONBACKEND_Request** requests,
                                                                       const uint32_t count) {
  return guarded([&] { instance_of(handle)->execute(requests, count); });
}
