// Compressed answers: which of gzip's and zlib's formats a client asks for, and answers in it.
#pragma once

#include <string_view>

#include "deflate.h"
#include "exchange.h"

namespace pytriton::http {

// The coding that Accept-Encoding asks for. A client that names several, such as "gzip, deflate", merely says what it
// can read, and gets its answer sooner as it is: a coding is used if it is the only one that is acceptable beside
// identity, and preferred to that, or if identity is refused. Elements with a weight that is none count as absent.
Coding coding_of(const Request& request);

// Sends an answer, in the coding that its request asks for. Large ones are compressed on another thread.
void send_as_accepted(Exchange& exchange, Response&& response);

}  // namespace pytriton::http
