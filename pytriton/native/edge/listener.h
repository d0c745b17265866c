// A socket that connections come to.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "../frames/descriptor.h"
#include "loop.h"

namespace pytriton::http {

// Whether an address is "unix:" and a path, which has no port.
bool is_path(std::string_view address);

// Throws Failure, with the address and the reason, if it cannot listen. An address "unix:PATH" replaces a socket that
// nobody listens on.
Descriptor listen_on(const std::string& address, int port);

// A socket that listens already, of the process that launched this one, which may hand it to the next one, too.
Descriptor inherited(int socket);

// Removes a Unix socket that nobody listens on any more: no other could be opened in its place.
void remove_unused(const std::string& path);

class Listener final : public Pollable {
 public:
  using Accepted = std::function<void(Descriptor socket, std::string peer)>;

  Listener(Loop& loop, Descriptor socket, Accepted accepted);

  void ready(uint32_t events) override;
  void close();  // after it has accepted those that wait; nobody else who has the socket gets others

 private:
  unsigned accept();  // the number of connections, some of those that wait

  Loop& loop_;
  Descriptor socket_;
  Accepted accepted_;
};

}  // namespace pytriton::http
