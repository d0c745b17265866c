// ModelInferRequest: what a client asks of a model.
#pragma once

#include <functional>
#include <string_view>

#include "../kserve/inference.h"

namespace pytriton::http {

struct GrpcRequest {
  InferenceRequest request;
  bool wants_final = false;  // a message that says that there are no more, if the last one does not
};

// Reads a message, which inputs with raw contents refer to. Throws Failure; `to` has then what came before.
// `admit` is called with the bytes of typed contents before they are read, as they take more memory than raw ones; it
// may throw Failure.
using AdmitContents = std::function<void(size_t bytes)>;
void read_grpc_request(std::string_view message, const AdmitContents& admit, GrpcRequest& to);

// The version of a model: -1 for an empty text. Throws Failure.
int64_t read_version(const std::string& text);

}  // namespace pytriton::http
