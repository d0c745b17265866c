// Where each request goes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http_exchange.h"
#include "loop.h"
#include "transport.h"

namespace pytriton::http {

// Has a request answered, now or later; on the loop's thread.
void route(Loop& loop, HttpExchange& exchange, Entrance entrance);

// The most bytes of a body, and what is said instead of receiving one.
struct Admission {
  uint64_t most_body;
  std::optional<Response> refusal;
};

// What is known from the head of a request whose body is large, before that has come.
Admission admit(const Loop& loop, const Request& head, Entrance entrance);

// A connection of gRPC, which answers its requests itself. `received`: what has come on it.
std::shared_ptr<ClientConnection> make_grpc_connection(Loop& loop, Transport transport, std::string peer,
                                                       std::string received);

}  // namespace pytriton::http
