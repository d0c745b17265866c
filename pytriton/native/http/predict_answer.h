// The JSON of /predict: from a model's responses to objects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inference.h"
#include "predict_fields.h"

namespace pytriton::http {

// Appends a text of JSON, with its quotes, in the application's spelling. What is not UTF-8 is replaced.
void append_text(std::string& json, std::string_view text);

// The object with the outputs of each row of a response. Throws Failure if an output is not what the model says.
std::vector<std::string> make_results(const Fields& fields, const ModelResponse& response, size_t rows);

}  // namespace pytriton::http
