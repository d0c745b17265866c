// The ports of Vertex AI and SageMaker: their few paths are those below /v2, of one model.
#pragma once

#include "../edge/config.h"
#include "../edge/loop.h"
#include "../kserve/v2_path.h"

namespace pytriton::http {

// What a request asks for that came by the port of a cloud, or by another one, where its path says it.
V2Path asked_path(const Config& config, Entrance entrance, const Request& request);

}  // namespace pytriton::http
