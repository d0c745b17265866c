// Requests that a process behind the front end answers.
#pragma once

#include "http_exchange.h"
#include "upstream.h"

namespace pytriton::http {

// Sends the request on, and its answer back as it comes. `tells_client`: with the client's address.
void forward(Loop& loop, Upstream& upstream, HttpExchange& exchange, bool tells_client);

}  // namespace pytriton::http
