// Where each request goes.
#pragma once

#include <string_view>

#include "http_exchange.h"
#include "loop.h"

namespace pytriton::http {

// Has a request answered, now or later; on the loop's thread.
void route(Loop& loop, HttpExchange& exchange, Entrance entrance);

// An answer as the server has them: {"error": message}.
Response error_response(int status, std::string_view message);

}  // namespace pytriton::http
