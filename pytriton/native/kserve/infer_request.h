// The body of a request to /v2/models/{model}/infer.
#pragma once

#include <cstddef>
#include <string_view>

#include "inference.h"
#include "json_elements.h"

namespace pytriton::http {

// Reads a body: JSON, and behind it the data of inputs that are binary. `head_size` is the size of the JSON: 0 if the
// body is nothing but the data of the model's only input. The body is followed by kPadding readable bytes. The
// request's model and version are set already; its inputs refer to the body and to its storage, or to parts of shared
// memory that are yet to be read. Throws Failure if it is wrong.
void read_infer_request(std::string_view body, size_t head_size, unsigned levels, InferenceRequest& request);

// Reads a parameter of a request that is not one of the protocol's. Throws Failure if it is no number, text or boolean.
Parameter read_parameter(std::string_view name, JsonValue value);

// The text of a value. Throws Failure, with the member's name, if it is none, or has a NUL, which the server's
// functions cannot take.
std::string_view read_text(JsonValue value, std::string_view member);

}  // namespace pytriton::http
