// What the server says of itself and of its models: health, metadata, configurations, statistics, and the index.
#pragma once

#include <string>

#include "../edge/exchange.h"
#include "../edge/server_functions.h"
#include "v2_path.h"

namespace pytriton::http {

// JSON of the server's, followed by kPadding readable bytes: its metadata, those of a model, its configuration,
// statistics, or the index, of ready models alone if that is asked for. Throws Failure.
std::string describe(TRITONSERVER_Server* server, Action action, const Target& target, bool ready_alone = false);

// Answers a request whose action is_metadata().
void answer_metadata(TRITONSERVER_Server* server, Exchange& exchange, const V2Path& path);

}  // namespace pytriton::http
