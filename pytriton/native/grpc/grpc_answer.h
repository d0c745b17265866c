// ModelInferResponse and ModelStreamInferResponse: what a model answers.
#pragma once

#include <string_view>

#include "../kserve/infer_answer.h"
#include "grpc_message.h"

namespace pytriton::http {

// A response of a model. `is_final`: whether it is the last one, for a stream; nullptr for a call with one response.
// Takes the memory of large outputs. Throws Failure: the model's, or if an output cannot be sent.
MessagePointer make_message(const ModelResponse& response, const AnswerFormat& format, const bool* is_final);

// For a stream: that there are no more responses; that the model failed; that a request was refused.
MessagePointer make_final_message(std::string_view model, std::string_view id);
MessagePointer make_failed_message(std::string_view error, std::string_view model, std::string_view id, bool is_final);
MessagePointer make_error_message(std::string_view error, std::string_view id);

}  // namespace pytriton::http
