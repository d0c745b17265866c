// What the head of a request to /predict asks for.
#pragma once

#include <optional>
#include <string>

#include "../edge/exchange.h"
#include "../edge/route_options.h"

namespace pytriton::http {

struct AnswerOptions {
  bool has_events = false;  // a stream is one of server-sent events; else lines of JSON
  std::string id;           // of the request
};

// Nothing if the application has to answer: the body is not JSON, the answer shall not be, or the request is refused.
// `is_stream`: the model answers with a stream.
std::optional<AnswerOptions> read_answer_options(const Request& request, const PredictOptions& options, bool is_stream);

}  // namespace pytriton::http
