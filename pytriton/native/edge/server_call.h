// A request of our own to the server's own endpoint.
#pragma once

#include <string>
#include <string_view>

namespace pytriton::http {

struct ServerAnswer {
  int status = 0;
  std::string body;
};

// `path` is that of its socket. Waits for the answer, at most some seconds between two bytes. Throws Failure if there
// is none.
ServerAnswer ask_server(const std::string& path, std::string_view method, std::string_view target,
                        std::string_view body = {});

}  // namespace pytriton::http
