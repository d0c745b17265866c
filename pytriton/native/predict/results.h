// The JSON of /predict: from a model's responses to objects.
#pragma once

#include <string>
#include <vector>

#include "../kserve/inference.h"
#include "signature.h"

namespace pytriton::http {

// The object with the outputs of each row of a response. Throws Failure if an output is not what the model says.
std::vector<std::string> make_results(const Signature& signature, const ModelResponse& response, size_t rows);

}  // namespace pytriton::http
