#include "grpc_methods.h"

#include <algorithm>
#include <iterator>

namespace pytriton::http {

namespace {

#define PYTRITON_SERVICE "/inference.GRPCInferenceService/"
constexpr MethodEntry kMethods[] = {
    {PYTRITON_SERVICE "ModelInfer", Method::infer, Action::infer},
    {PYTRITON_SERVICE "ModelStreamInfer", Method::stream_infer, Action::infer},
    {PYTRITON_SERVICE "ServerLive", Method::ready, Action::live},
    {PYTRITON_SERVICE "ServerReady", Method::ready, Action::ready},
    {PYTRITON_SERVICE "ModelReady", Method::ready, Action::model_ready},
    {"/grpc.health.v1.Health/Check", Method::health, Action::ready},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Method::reflection, Action::metadata},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Method::reflection, Action::metadata},
    {PYTRITON_SERVICE "ServerMetadata", Method::described, Action::metadata},
    {PYTRITON_SERVICE "ModelMetadata", Method::described, Action::model},
    {PYTRITON_SERVICE "ModelConfig", Method::described, Action::config},
    {PYTRITON_SERVICE "ModelStatistics", Method::described, Action::statistics},
    {PYTRITON_SERVICE "RepositoryIndex", Method::described, Action::index},
    {PYTRITON_SERVICE "RepositoryModelLoad", Method::model_control, Action::load},
    {PYTRITON_SERVICE "RepositoryModelUnload", Method::model_control, Action::unload},
    {PYTRITON_SERVICE "SystemSharedMemoryStatus", Method::memory, Action::memory_status},
    {PYTRITON_SERVICE "SystemSharedMemoryRegister", Method::memory, Action::memory_register},
    {PYTRITON_SERVICE "SystemSharedMemoryUnregister", Method::memory, Action::memory_unregister},
    {PYTRITON_SERVICE "CudaSharedMemoryStatus", Method::memory, Action::memory_status, true},
    {PYTRITON_SERVICE "CudaSharedMemoryRegister", Method::memory, Action::memory_register, true},
    {PYTRITON_SERVICE "CudaSharedMemoryUnregister", Method::memory, Action::memory_unregister, true},
    {PYTRITON_SERVICE "TraceSetting", Method::settings, Action::trace},
    {PYTRITON_SERVICE "LogSettings", Method::settings, Action::logging},
};
#undef PYTRITON_SERVICE

}  // namespace

const MethodEntry* find_method(std::string_view path) {
  const auto* const found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                         [&](const MethodEntry& each) { return path == each.path; });
  return found == std::end(kMethods) ? nullptr : found;
}

}  // namespace pytriton::http
