// Requests to control models, and for shared memory and settings: what of them gets to the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../kserve/shared_memory.h"
#include "../kserve/v2_path.h"

namespace pytriton::http {

// A model to load or to unload.
struct ModelControl {
  struct File {
    std::string name;          // "file:<path>"
    std::string_view content;  // of the message
  };
  std::string model;
  bool has_config = false, with_dependents = false;
  std::string config;
  std::vector<File> files;
};
ModelControl read_model_control(std::string_view message, Action action);  // throws Failure

// A region of shared memory; without a name, all of them.
struct MemoryRequest {
  std::string name;
  Registration registration;
};
MemoryRequest read_memory_request(std::string_view message, const V2Path& path);  // throws Failure

// Settings of the log, or of traces.
struct SettingsRequest {
  std::string model;  // whose traces; empty: of all
  std::string json;   // what the server's HTTP endpoint takes; empty: none is to change
};
SettingsRequest read_settings(std::string_view message, Action action);  // throws Failure

}  // namespace pytriton::http
