// What the head of a request to /predict asks for.
#pragma once

#include <optional>
#include <string_view>

#include "predict_call.h"
#include "routes.h"

namespace pytriton::http {

// Nothing if the application has to answer: the body is not JSON, the answer shall not be, or the request is refused.
// `is_stream`: the model answers with a stream in any case.
std::optional<Wish> read_wish(const Request& request, const PredictOptions& options, bool is_stream);

}  // namespace pytriton::http
