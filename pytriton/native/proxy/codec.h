// Between the server's requests and responses and frames.
#pragma once

#include "../frames/wire.h"
#include "channel.h"
#include "model.h"
#include "request.h"
#include "scheduler.h"

namespace pytriton {

// The frame for a batch; its tensors are views of the requests' inputs. Requests that cannot travel get an error and
// move to the refused ones, so that those merged with them do not suffer. If no request is left, there is nothing to
// send. The reason is that of the scheduler, for spans.
Outgoing encode(Requests& requests, const Model& model, Requests& refused, const char* reason = nullptr);

// Rows of all requests of a batch, or their number without batching, as the server counts it.
uint64_t batch_size(const Requests& requests, const Model& model) noexcept;

// For a model's scheduler.
QueuedRequest queued(const std::shared_ptr<Request>& request, const Model& model);

// Gives each request that is not done the response that a response frame has for it, without sending it. Throws
// FrameError if the frame makes no sense; some requests may have got theirs.
void respond(const Reply& reply, const Requests& requests, const Model& model);

// What an error frame says. Throws FrameError.
struct Status {
  Code code;
  std::string message;
  bool isolate;
};
Status status_of(const Reply& reply);

// What tells the worker of cancelled requests of a batch, by their indices.
Outgoing cancellation(uint32_t number, size_t requests, const std::vector<size_t>& cancelled, bool all_done);
Outgoing cancellation(uint32_t number, const Requests& requests);  // of those that are cancelled now

}  // namespace pytriton
