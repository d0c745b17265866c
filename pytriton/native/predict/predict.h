// The route of /predict.
#pragma once

#include <functional>

#include "../edge/exchange.h"
#include "../frames/server_api.h"
#include "../kserve/v2_path.h"

namespace pytriton::http {

// False: it is left to the application, and not answered. `fall_back` leaves it to that if that turns out later to be
// necessary, on any thread.
bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()> fall_back);

}  // namespace pytriton::http
