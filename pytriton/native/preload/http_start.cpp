// Part of the library that is preloaded into servers: starts the edge of native/edge in a server that
// PYTRITON_HTTP, the path of a configuration, asks for one; and stops it with the server.
#include <climits>
#include <cstdlib>
#include <string>

#include "../frames/triton.h"
#include "preloaded.h"

extern "C" {
struct TRITONSERVER_Server;
struct TRITONSERVER_ServerOptions;
}

namespace {

using Error = TRITONSERVER_Error*;

struct Edge {
  Error (*start)(TRITONSERVER_Server* server, const char* config) = nullptr;
  void (*drain)() = nullptr;
  void (*stop)() = nullptr;
};
Edge edge;

Error error(const std::string& message) {
  static const auto make = pytriton::next<decltype(TRITONSERVER_ErrorNew)>("TRITONSERVER_ErrorNew");
  return make(TRITONSERVER_ERROR_UNAVAILABLE, message.c_str());
}

// The library beside this one, which may have been found through a link.
Error load() {
  Dl_info own{};
  char path[PATH_MAX];
  if (!dladdr(reinterpret_cast<void*>(&load), &own) || !realpath(own.dli_fname, path))
    return error("the path of the preloaded library is not known");
  std::string library = path;
  library.replace(library.rfind('/') + 1, std::string::npos, "libpytriton_http.so");
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return error(std::string("the edge cannot be loaded: ") + dlerror());
  edge.start = reinterpret_cast<decltype(edge.start)>(dlsym(handle, "pytriton_http_start"));
  edge.drain = reinterpret_cast<decltype(edge.drain)>(dlsym(handle, "pytriton_http_drain"));
  edge.stop = reinterpret_cast<decltype(edge.stop)>(dlsym(handle, "pytriton_http_stop"));
  if (edge.start && edge.drain && edge.stop) return nullptr;
  edge = {};
  return error(library + " lacks functions");
}

void stop() {
  if (edge.stop) edge.stop();
  edge = {};
}

}  // namespace

extern "C" {

Error TRITONSERVER_ServerNew(TRITONSERVER_Server** server, TRITONSERVER_ServerOptions* options) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ServerNew)>("TRITONSERVER_ServerNew");
  static const auto server_delete = pytriton::next<Error(TRITONSERVER_Server*)>("TRITONSERVER_ServerDelete");
  Error failure = server_s(server, options);
  const char* const config = std::getenv("PYTRITON_HTTP");
  if (failure || !config) return failure;
  failure = load();
  if (!failure) failure = edge.start(*server, config);
  if (failure) {
    edge = {};
    server_delete(*server);  // its error would hide ours
    *server = nullptr;
  }
  return failure;
}

Error TRITONSERVER_ServerStop(TRITONSERVER_Server* server) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ServerStop)>("TRITONSERVER_ServerStop");
  if (edge.drain) edge.drain();
  Error failure = server_s(server);  // answers the requests in flight
  stop();
  return failure;
}

Error TRITONSERVER_ServerDelete(TRITONSERVER_Server* server) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ServerDelete)>("TRITONSERVER_ServerDelete");
  stop();
  return server_s(server);
}
}
