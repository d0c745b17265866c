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

#include "account.h"

namespace pytriton::http {

constexpr size_t kPadding = 64;            // readable bytes behind each body, which simdjson needs
constexpr size_t kMostUnsent = 256 << 20;  // bytes of a stream whose client does not read

struct Header {
  std::string_view name, value;
};

// Whether a header belongs to the connection and not to what it carries.
bool is_hop_by_hop(std::string_view name);

// Of text in ASCII, as headers are.
bool equals_ignoring_case(std::string_view one, std::string_view lower_case);
std::string in_lower_case(std::string_view text);
bool ends_with(std::string_view text, std::string_view end);

// Without spaces and tabs around it.
inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

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

// A request of a client, for which something is done that another thread may end. Counted: its memory stays until the
// last reference is dropped.
class Caller {
 public:
  // Has `cancel` called once, on any thread, if the client goes before the answer is complete; at once if it has gone.
  // nullptr: no more; waits for a call that is under way on another thread. `cancel` must not wait for a lock that is
  // held during calls of this object, and must not hold a reference to it.
  virtual void on_disconnect(std::function<void()> cancel) = 0;

  // Calls `task`; on the thread that reads requests, when those that have come by now have been read. The server makes
  // larger batches of requests that it gets together.
  virtual void defer(std::function<void()> task) = 0;

  // Reserves memory that the request takes beside its body. If there is none, `charge` stays as it was, and an answer
  // that says so tells when to try again.
  virtual bool reserve(uint64_t bytes, Charge& charge) {
    static_cast<void>(bytes), static_cast<void>(charge);
    return true;
  }

  virtual void retain() = 0;
  virtual void release() = 0;

 protected:
  ~Caller() = default;
};

// One of HTTP. Routes answer exactly once: with send(), or with begin(), any number of write(), and end(). They may do
// so on any thread, later, and after the client has gone.
class Exchange : public Caller {
 public:
  virtual const Request& request() const = 0;
  virtual void send(Response&& response) = 0;

  // A response of chunks, which are sent as they come.
  virtual void begin(Response&& head) = 0;
  virtual void write(std::string&& chunk) = 0;
  virtual void end() = 0;
  virtual size_t unsent() const = 0;  // bytes that the client has not taken

 protected:
  ~Exchange() = default;
};

// A counted reference.
template <typename Counted>
class Reference {
 public:
  explicit Reference(Counted& counted) : counted_(&counted) { counted.retain(); }
  Reference(const Reference& other) : Reference(*other.counted_) {}
  Reference(Reference&& other) noexcept : counted_(std::exchange(other.counted_, nullptr)) {}
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    if (counted_) counted_->release();
  }
  Counted& operator*() const { return *counted_; }
  Counted* operator->() const { return counted_; }

 private:
  Counted* counted_;
};
using ExchangeReference = Reference<Exchange>;

}  // namespace pytriton::http
