// Which headers of an inference become parameters, and which go with it to the server's own endpoint.
#pragma once

#include "../edge/exchange.h"
#include "../edge/route_options.h"
#include "inference.h"

namespace pytriton::http {

// Adds the headers that match the pattern of the protocol to the parameters, but for names that the protocol reserves.
void forward_headers(const Request& from, InferenceRequest& to, Protocol protocol = Protocol::http);

// Lines of the headers that the server's own endpoint needs of an inference that is left to it.
std::string headers_for_server(const Request& request);

}  // namespace pytriton::http
