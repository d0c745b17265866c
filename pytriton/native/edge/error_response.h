// Answers that say what is wrong, as the server has them: {"error": message}.
#pragma once

#include <new>
#include <string_view>

#include "../frames/failure.h"
#include "account.h"
#include "exchange.h"

namespace pytriton::http {

// Status of the answer to a request that failed, as Triton's own endpoint has it.
int status_of(Code code);

Response error_response(int status, std::string_view message);
Response make_error(const Failure& failure);

// That there is no memory for a request, and when to try again.
Response busy_response(Refusal refusal);

// Calls a function, and answers the exchange with what it throws.
template <typename Function>
void answer_failures(Exchange& exchange, const Function& function) {
  try {
    function();
  } catch (const Failure& failure) {
    exchange.send(make_error(failure));
  } catch (const std::bad_alloc&) {
    exchange.send(make_error(Failure(Code::unavailable, "no memory for the request")));
  }
}

}  // namespace pytriton::http
