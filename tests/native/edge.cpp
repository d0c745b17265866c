// The edge with clients that send requests whole, in parts and wrong ones, that go at any time, and beside a
// process that answers, ends or lies. Run with sanitizers.
//
// Usage: edge <requests of each client>
#include "edge/edge.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chance.h"
#include "echo_server.h"
#include "edge/clock.h"
#include "edge/listener.h"
#include "frames/descriptor.h"

using pytriton::Descriptor;
using namespace pytriton::http;

namespace {

constexpr int kClients = 48;  // so many that the loops send answers of other threads
constexpr const char *kSocket = "edge.sock", *kUpstream = "upstream.sock", *kControl = "control.sock";
constexpr const char *kApplication = "application.sock", *kCounters = "counters";
constexpr const char* kRecentRequests = "requests";
constexpr size_t kCountersBytes = 2 << 20, kRecentRequestsBytes = size_t{512} * 256;
constexpr std::string_view kFolder = "/docs";  // of the application

Descriptor connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);  // NOLINT: it is short
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return Descriptor();
  return socket;
}

void send_all(const Descriptor& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // refused, and closed
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string lower_case(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

// Reads answers of a connection.
class Answers {
 public:
  explicit Answers(const Descriptor& socket) : socket_(socket) {}

  // The status of the next one; 0 at the connection's end.
  int next() {
    size_t end;
    while ((end = bytes_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return 0;
    const std::string head = lower_case(bytes_.substr(0, end + 4));
    bytes_.erase(0, end + 4);
    const int status = std::stoi(head.substr(9, 3));
    body.clear();
    if (status < 200) return next();
    const size_t length = head.find("content-length: ");
    if (length != std::string::npos) return take(std::stoul(head.substr(length + 16)), body) ? status : 0;
    if (head.find("transfer-encoding: chunked") == std::string::npos) return status;
    while (true) {
      size_t line;
      while ((line = bytes_.find("\r\n")) == std::string::npos)
        if (!receive()) return 0;
      const size_t size = std::stoul(bytes_.substr(0, line), nullptr, 16);
      bytes_.erase(0, line + 2);
      std::string ignored;
      if (!take(size, body) || !take(2, ignored)) return 0;
      if (!size) return status;
    }
  }

  std::string body;

 private:
  bool receive() {
    char data[4096];
    const ssize_t received = ::recv(socket_.get(), data, sizeof data, 0);
    if (received <= 0) return false;
    bytes_.append(data, static_cast<size_t>(received));
    return true;
  }

  bool take(size_t size, std::string& to) {
    while (bytes_.size() < size)
      if (!receive()) return false;
    to.append(bytes_, 0, size);
    bytes_.erase(0, size);
    return true;
  }

  const Descriptor& socket_;
  std::string bytes_;
};

std::string request(const std::string& path, const std::string& body, size_t piece = 0) {
  std::string text = "POST " + path + " HTTP/1.1\r\nHost: edge\r\n";
  if (!piece) return text + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  text += "Transfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += piece) {
    const std::string part = body.substr(at, piece);
    char size[20];
    snprintf(size, sizeof size, "%zx\r\n", part.size());
    text += size + part + "\r\n";
  }
  return text + "0\r\n\r\n";
}

// The process behind: answers each request by what its path says.
void serve_upstream(const Descriptor& listener, const std::atomic<bool>& is_stopped) {
  std::vector<std::thread> threads;
  while (!is_stopped) {
    pollfd waiting{listener.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    threads.emplace_back([socket = Descriptor(::accept(listener.get(), nullptr, nullptr))] {
      std::string bytes;
      char data[4096];
      ssize_t received;
      while ((received = ::recv(socket.get(), data, sizeof data, 0)) > 0) {
        bytes.append(data, static_cast<size_t>(received));
        size_t end;
        while ((end = bytes.find("\r\n\r\n")) != std::string::npos) {
          const std::string head = bytes.substr(0, end);
          bytes.erase(0, end + 4);
          if (head.find("/ends/") != std::string::npos) return;
          if (head.find("/lies/") != std::string::npos) {
            send_all(socket, "220 this is no HTTP\r\n");
          } else if (head.find("/chunks/") != std::string::npos) {
            send_all(socket,
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Own\r\nX-Own: a\r\n\r\n5\r\n");
            send_all(socket, "chunk\r\n0\r\n\r\n");
          } else if (head.find("/large/") != std::string::npos) {
            constexpr size_t kLarge = 3 << 20;
            send_all(socket, "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kLarge) + "\r\n\r\n");
            send_all(socket, std::string(kLarge, 'l'));
          } else if (head.find("/close/") != std::string::npos) {
            send_all(socket, "HTTP/1.0 200 OK\r\n\r\nclose");
            return;
          } else {
            send_all(socket, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// A path that is forwarded, by the name of a model in it.
std::string forwarded(const char* name) { return std::string("/v2/models/") + name + "/trace/setting"; }

void check_forwarded(const std::string& path, int status, const Answers& answers) {
  if (path == forwarded("ends") || path == forwarded("lies")) {
    require(status == 502, "a process that ends or lies is a bad gateway");
  } else {
    require(status == 200, "answers of the process behind are passed on");
    require(path != forwarded("chunks") || answers.body == "chunk", "chunks are passed on");
    require(path != forwarded("close") || answers.body == "close", "bodies that end with the connection are passed on");
    require(path != forwarded("large") || answers.body.size() == 3 << 20, "large bodies are passed on");
  }
}

void call(uint64_t seed, int rounds) {
  Random random(seed);
  const std::string paths[] = {forwarded("ends"),  forwarded("lies"),  forwarded("chunks"),
                               forwarded("large"), forwarded("close"), forwarded("other")};
  const std::string infer =
      request("/v2/models/echo/infer", R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})");
  for (int round = 0; round < rounds; ++round) {
    const uint64_t kind = up_to(random, 7);
    const bool is_of_application = kind == 7;
    const Descriptor socket = connect_to(is_of_application ? kApplication : kSocket);
    require(static_cast<bool>(socket), "connections are accepted");
    Answers answers(socket);
    const bool leaves = up_to(random, 3) == 0;
    std::string bytes;
    size_t expected = 1;
    if (kind == 0) {
      expected = 1 + up_to(random, 4);
      for (size_t count = 0; count < expected; ++count) bytes += infer;
    } else if (kind == 1) {
      bytes = request("/v2/models/echo/infer",
                      R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]})", 1 + up_to(random, 40));
    } else if (kind == 2) {
      bytes = request("/v2/models/stream/generate_stream", R"({"x":[1,2],"t":"a"})");
    } else if (kind == 3) {
      bytes = infer;
      bytes[up_to(random, bytes.size() - 1)] = static_cast<char>(up_to(random, 255));
    } else if (kind == 4) {
      bytes = infer.substr(0, up_to(random, infer.size() - 1));
    } else {
      bytes = request(std::string(is_of_application ? kFolder : "") + paths[up_to(random, 5)], "{}");
    }
    // At once or in two parts
    const size_t cut = up_to(random, bytes.size());
    send_all(socket, std::string_view(bytes).substr(0, cut));
    send_all(socket, std::string_view(bytes).substr(cut));
    if (leaves) continue;
    if (kind == 4 || kind == 3 || up_to(random, 1)) ::shutdown(socket.get(), SHUT_WR);
    if (kind == 3 || kind == 4) {
      while (answers.next()) {
      }
      continue;
    }
    for (size_t count = 0; count < expected; ++count) {
      const int status = answers.next();
      if (kind > 4) {
        const size_t start = 5 + (is_of_application ? kFolder.size() : 0);
        check_forwarded(bytes.substr(start, bytes.find(' ', start) - start), status, answers);
      } else {
        require(status == 200, "right requests are answered");
      }
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "usage: edge <requests of each client>");
  has_threads = true;
  Config config;
  config.address = std::string("unix:") + kSocket;
  config.threads = 2;
  config.upstream = kUpstream;
  config.control = kControl;
  config.access_log = "access.log";
  config.application = kUpstream;
  const Descriptor port = listen_on(std::string("unix:") + kApplication, 0);
  config.application_listener = ::dup(port.get());
  config.counters = kCounters;
  const Descriptor counters(::open(kCounters, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  require(::ftruncate(counters.get(), kCountersBytes) == 0, "there is a file of counters");
  config.recent_requests = kRecentRequests;
  const Descriptor recent(::open(kRecentRequests, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  require(::ftruncate(recent.get(), kRecentRequestsBytes) == 0, "there is a file of requests");
  config.max_buffered_bytes = 64 << 20;
  std::atomic<bool> is_stopped{false};
  auto edge = std::make_unique<Edge>(nullptr, config);
  const Descriptor upstream = listen_on(std::string("unix:") + kUpstream, 0);
  std::thread server([&] { serve_upstream(upstream, is_stopped); });
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (uint64_t seed = 1; seed <= kClients; ++seed) clients.emplace_back(call, seed, std::stoi(arguments[1]));
  for (auto& client : clients) client.join();

  const Descriptor idle = connect_to(kSocket), control = connect_to(kControl);
  send_all(control, "GET /metrics HTTP/1.1\r\nHost: edge\r\n\r\nPOST /drain HTTP/1.1\r\nHost: edge\r\n\r\n");
  Answers answers(control);
  require(answers.next() == 200, "there are metrics");
  require(answers.body.find(R"(route="infer",status="200")") != std::string::npos, "requests are counted");
  require(answers.next() == 200, "the edge is drained");
  require(!connect_to(kSocket) && !connect_to(kApplication), "no connection is accepted after that");
  Answers none(idle);
  require(none.next() == 0, "idle connections are closed");
  edge->stop(10 * kSecond_ns);
  edge.reset();  // with its connections to the process behind
  is_stopped = true;
  server.join();
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
