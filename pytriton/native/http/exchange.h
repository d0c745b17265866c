// One HTTP request and its answer: what a route sees of a connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pytriton::http {

constexpr size_t kPadding = 64;  // readable bytes behind each body, which simdjson needs

struct Header {
  std::string_view name, value;
};

bool equals_ignoring_case(std::string_view one, std::string_view lower_case);  // in ASCII

// A request whose head and body have been received. Its views are valid as long as its Exchange.
struct Request {
  std::string_view method, target, path, query;  // the target is path and query as the client sent them
  std::vector<Header> headers;
  std::string_view body;  // without transfer and content encoding
  std::string_view peer;  // address of the client; empty if it came by a Unix socket
  bool is_encrypted = false;

  // Value of a header whose name is given in lower case; empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string headers;                // further lines, each as "Name: value\r\n"
  std::string body;                   // comes first
  std::vector<iovec> parts;           // follow it, without a copy
  std::shared_ptr<const void> owner;  // of the memory of the parts, until they are written
  int64_t content_length = -1;        // of a response of begin(), if it is known; else it has chunks
};

// Routes answer exactly once: with send(), or with begin(), any number of write(), and end(). They may do so on any
// thread, later, and after the client has gone. The request's memory stays until the last reference is dropped.
class Exchange {
 public:
  virtual const Request& request() const = 0;
  virtual void send(Response&& response) = 0;

  // A response of chunks, which are sent as they come.
  virtual void begin(Response&& head) = 0;
  virtual void write(std::string&& chunk) = 0;
  virtual void end() = 0;
  virtual size_t unsent() const = 0;  // bytes that the client has not taken

  // Has `cancel` called once, on any thread, if the client goes before the answer is complete; at once if it has gone.
  // nullptr: no more; waits for a call that is under way on another thread. `cancel` must not wait for a lock that is
  // held during calls of this object, and must not hold a reference to it.
  virtual void on_disconnect(std::function<void()> cancel) = 0;

  // Calls `task`; on the thread that reads requests, when those that have come by now have been read. The server makes
  // larger batches of requests that it gets together.
  virtual void together(std::function<void()> task) = 0;

  virtual void retain() = 0;
  virtual void release() = 0;

 protected:
  ~Exchange() = default;
};

// A counted reference to an Exchange.
class ExchangeReference {
 public:
  explicit ExchangeReference(Exchange& exchange) : exchange_(&exchange) { exchange.retain(); }
  ExchangeReference(const ExchangeReference& other) : ExchangeReference(*other.exchange_) {}
  ExchangeReference(ExchangeReference&& other) noexcept : exchange_(std::exchange(other.exchange_, nullptr)) {}
  ExchangeReference& operator=(const ExchangeReference&) = delete;
  ~ExchangeReference() {
    if (exchange_) exchange_->release();
  }
  Exchange& operator*() const { return *exchange_; }
  Exchange* operator->() const { return exchange_; }

 private:
  Exchange* exchange_;
};

}  // namespace pytriton::http
