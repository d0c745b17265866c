// The functions that the preloaded library calls when the server starts and stops.
#include <memory>

#include "../frames/failure.h"
#include "edge.h"

namespace {

using pytriton::http::Edge;

constexpr int64_t kStopTimeout_ns = 5 * pytriton::http::kSecond_ns;

Edge* edge = nullptr;  // never deleted: the server may still hold requests of it when the process exits

}  // namespace

extern "C" {

__attribute__((visibility("default"))) TRITONSERVER_Error* pytriton_http_start(TRITONSERVER_Server* server,
                                                                               const char* config) {
  try {
    edge = new Edge(server, pytriton::http::read_config(config));
  } catch (const pytriton::Failure& failure) {
    return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(failure.code), failure.what());
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
  return nullptr;
}

// New connections are refused from now on; requests in flight are answered while the server stops.
__attribute__((visibility("default"))) void pytriton_http_drain() {
  if (edge) edge->drain({});
}

// The server has stopped, and answers no request any more.
__attribute__((visibility("default"))) void pytriton_http_stop() {
  if (edge) std::exchange(edge, nullptr)->stop(kStopTimeout_ns);
}
}
