// The methods that are served.
#pragma once

#include <string_view>

#include "../kserve/v2_path.h"

namespace pytriton::http {

enum class Method { infer, stream_infer, reflection, ready, health, described, model_control, memory, settings };

struct MethodEntry {
  const char* path;
  Method method;
  Action action;  // the same over HTTP, whose group of endpoints it has
  bool is_cuda = false;

  // Whether a request may be as large as an inference: a model may be loaded with its files.
  bool is_large() const { return action == Action::infer || action == Action::load; }
};

// nullptr: there is no such method.
const MethodEntry* find_method(std::string_view path);

}  // namespace pytriton::http
