// What a call is answered with.
#pragma once

#include <new>
#include <string>
#include <string_view>

#include "grpc_call.h"

namespace pytriton::http {

void infer_grpc(GrpcCall& call);

// The answer of reflection to a request. Throws Failure.
std::string reflect(std::string_view request);

// Control of models, shared memory, and settings: on another thread.
void control_grpc(GrpcCall& call);

// Calls a function that answers; what it throws is the answer.
template <typename Function>
void answer_or_fail(GrpcCall& call, const Function& function) {
  try {
    function();
  } catch (const Failure& failure) {
    call.fail(failure, {});
  } catch (const std::bad_alloc&) {
    call.fail(Failure(Code::unavailable, "no memory for the request"), {});
  }
}

}  // namespace pytriton::http
