// Bodies of requests that the server's own endpoint answers: they are read here first, within bounds.
#pragma once

#include <string_view>

#include "v2_path.h"

namespace pytriton::http {

constexpr size_t kMostSettingsBytes = 64 << 10;  // of a body, but for that of a load, which may hold a model's files
constexpr unsigned kControlLevels = 8;           // of members that are ignored

// Throws Failure unless a body is JSON that the action takes. It is followed by kPadding readable bytes.
void check_control_body(Action action, std::string_view body);

}  // namespace pytriton::http
