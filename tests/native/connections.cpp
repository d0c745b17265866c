// A worker that is about to end takes nothing any more, and answers a batch that went to its successor: that answer
// must not reach the batch's requests. Built with sanitizers by the tests.
// Usage: connections <folder for sockets>
#include <sys/socket.h>

#include <future>

#include "proxy/concurrent_executor.h"
#include "server.h"
#include "worker.h"

namespace {

using namespace pytriton;

constexpr float kFirst = 1, kSecond = 2, kForged = 3;

Model description() {
  Model model;
  model.name = "model";
  model.inputs = {{"x", 11, {-1, -1}}};
  model.outputs = {{"y", 11}};
  model.batching = true;
  return model;
}

// The worker's end of a connection.
class End {
 public:
  explicit End(int listener)
      : socket_(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)), peer_(greet(socket_.get(), arena_)) {}

  // Number of the next batch.
  uint32_t take() {
    char message[kMostMessageBytes];
    const ssize_t length = recv(socket_.get(), message, sizeof message, 0);
    if (length <= 0) broken("the proxy sends a batch");
    Frame frame;
    unpack({message, static_cast<size_t>(length)}, frame);
    if (frame.kind != Kind::request) broken("the proxy sends a batch");
    return frame.number;
  }

  void listen_no_more() const { shutdown(socket_.get(), SHUT_RD); }

  void answer(uint32_t number, float value) const {
    Outgoing frame;
    frame.kind = Kind::response;
    frame.number = number;
    frame.requests = 1;
    frame.has_rows = true;
    frame.rows = {1};
    frame.tensors.push_back({0, kWholeBatch, 11, {1, 1}, sizeof value, {{&value, sizeof value}}});
    std::vector<char> message;
    pack(frame, message);
    ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  }

 private:
  Arena arena_;
  Descriptor socket_;
  PeerMemory peer_;
};

Requests calls(const TicketPointer& ticket) { return {std::make_shared<Request>(make_request(ticket), nullptr, true)}; }

void wait_over(const TicketPointer& ticket) {
  while (!ticket->is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string path = std::string(arguments[1]) + "/worker";
  const Model model = description();
  const Descriptor listener = listen_at(path);
  auto meeting = std::async(std::launch::async, [&] { return std::make_unique<End>(listener.get()); });
  ConcurrentExecutor streams(std::make_unique<WorkerConnection>(path, "model", "instance"), model, nullptr, 8);
  const std::unique_ptr<End> dying = meeting.get();
  const auto first = std::make_shared<Ticket>(std::vector<float>{kFirst});
  const auto second = std::make_shared<Ticket>(std::vector<float>{kSecond});
  streams.execute(calls(first));
  dying->take();
  dying->listen_no_more();

  meeting = std::async(std::launch::async, [&] { return std::make_unique<End>(listener.get()); });
  streams.execute(calls(second));
  const std::unique_ptr<End> successor = meeting.get();
  const uint32_t number = successor->take();
  dying->answer(number, kForged);
  wait_over(first);
  if (first->errors != 1) broken("the batch of a connection that cannot be trusted fails");
  if (second->is_over) broken("a batch is answered over its own connection");
  successor->answer(number, kSecond);
  wait_over(second);
  if (second->responses != 1 || second->errors != 0) broken("the batch gets its own answer");
}
