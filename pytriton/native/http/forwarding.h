// Which requests are left to the server's own endpoint, and which of their headers become parameters.
#pragma once

#include "inference.h"
#include "routes.h"

namespace pytriton::http {

const RouteOptions& route_options();

// Whether only the server's own endpoint does all that this request needs.
bool is_left_to_server(const Request& request);

// Adds the headers that match the pattern to the parameters.
void forward_headers(const Request& from, InferenceRequest& to);

}  // namespace pytriton::http
