// The routes of inferences.
#pragma once

#include <functional>
#include <string_view>

#include "../edge/exchange.h"
#include "../frames/server_api.h"
#include "inference.h"
#include "v2_path.h"

namespace pytriton::http {

// What an inference says of the size of its JSON; empty: the body has nothing else.
std::string_view head_size_text(const Request& request, const Target& target);

// Of what is known of a request's model. Throws Failure if there is no such model.
bool has_batch_axis(TRITONSERVER_Server* server, const InferenceRequest& request);

// The server takes a first extent modulo 2^32, and the batch axis away if nothing remains. Throws Failure.
void refuse_impossible_rows(TRITONSERVER_Server* server, const InferenceRequest& request);

// Finds the regions of a request. `may_wait`: by asking the server's own endpoint; else false if one is to be looked
// up, or if reading takes long. Throws Failure.
bool find_regions(InferenceRequest& request, bool may_wait, bool& is_of_gpu);

// Reads the inputs that are in shared memory, which clients may change meanwhile. Throws Failure.
void read_regions(Caller& caller, InferenceRequest& request);

// Both answer an inference. `fall_back` has the server's own endpoint do so: it is called instead, on any thread, when
// all of the request has been accepted.
using Fallback = std::function<void()>;
void infer_v2(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, const Fallback& fall_back);
void generate(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, bool is_stream,
              const Fallback& fall_back);

}  // namespace pytriton::http
