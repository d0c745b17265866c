// Requests that a process behind the edge answers.
#pragma once

#include <string>
#include <string_view>

#include "http_exchange.h"
#include "upstream.h"

namespace pytriton::http {

// Sends the request on to the application, with the client's address, and its answer back as it comes.
void forward_to_application(Loop& loop, HttpExchange& exchange);

// Has the server's own endpoint answer. It gets nothing of the head but the method: `target` and the lines of `headers`
// were written anew. The body was accepted by a parser of ours; only that of a POST is sent.
void forward_to_server(Loop& loop, HttpExchange& exchange, std::string_view target, std::string_view headers);

}  // namespace pytriton::http
