#include "error_response.h"

#include "../frames/json.h"

namespace pytriton::http {

namespace {
constexpr const char* kRetryAfter = "Retry-After: 1\r\n";
}  // namespace

int status_of(Code code) {
  switch (code) {
    case Code::not_found:
      return 404;
    case Code::internal:
      return 500;
    case Code::unsupported:
      return 501;
    case Code::unavailable:
      return 503;
    default:
      return 400;
  }
}

Response error_response(int status, std::string_view message) {
  Response response;
  response.status = status;
  response.body = "{\"error\":";
  append_json(response.body, message);
  response.body += '}';
  return response;
}

Response busy_response(Refusal refusal) {
  const bool is_share = refusal == Refusal::share;
  Response response =
      error_response(is_share ? 429 : 503, is_share ? "the requests of this address have all memory that it may have"
                                                    : "there is no memory for more requests");
  response.headers = kRetryAfter;
  return response;
}

Response make_error(const Failure& failure) {
  Response response = error_response(status_of(failure.code),
                                     is_utf8(failure.what()) ? failure.what() : "the model's message is not UTF-8");
  if (failure.code == Code::unavailable) response.headers = kRetryAfter;
  return response;
}

}  // namespace pytriton::http
