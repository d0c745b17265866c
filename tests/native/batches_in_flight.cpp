// ConcurrentExecutor beside a worker that a script plays. Built with sanitizers by the tests.
// Usage: batches_in_flight <folder for sockets>
#include <poll.h>
#include <sys/socket.h>

#include <future>

#include "proxy/concurrent_executor.h"
#include "server.h"
#include "worker.h"

namespace {

using namespace pytriton;

constexpr auto kPatience = std::chrono::seconds(60);

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

  // Number of the next batch, of so many requests.
  uint32_t take(uint32_t requests = 1) {
    Frame frame;
    std::vector<char> message;
    do receive(message, frame);
    while (frame.kind == Kind::cancel);
    if (frame.kind != Kind::request || frame.requests != requests) broken("the proxy sends a batch");
    return frame.number;
  }

  // Waits until there is something to take.
  void wait_ready() const {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) != 1) broken("a batch is sent");
  }

  void listen_no_more() const { shutdown(socket_.get(), SHUT_RD); }

  void answer(uint32_t number, const std::vector<float>& values) const {
    Outgoing frame = reply(Kind::response, number, 1);
    const uint64_t size = values.size() * sizeof(float);
    frame.has_rows = true;
    frame.rows = {1};
    frame.tensors.push_back(
        {0, kWholeBatch, 11, {1, static_cast<int64_t>(values.size())}, size, {{values.data(), size}}});
    send(frame);
  }

  // Has the proxy send each request of a batch again, alone.
  void fail_together(uint32_t number, uint32_t requests) const {
    Outgoing frame = reply(Kind::error, number, requests);
    frame.metadata = R"({"message":"no","code":"INTERNAL","isolate":true})";
    send(frame);
  }

 private:
  static Outgoing reply(Kind kind, uint32_t number, uint32_t requests) {
    Outgoing frame;
    frame.kind = kind;
    frame.number = number;
    frame.requests = requests;
    return frame;
  }

  void receive(std::vector<char>& message, Frame& frame) const {
    message.resize(kMaxMessageBytes);
    const ssize_t length = recv(socket_.get(), message.data(), message.size(), 0);
    if (length <= 0) broken("the proxy sends a frame");
    unpack({message.data(), static_cast<size_t>(length)}, frame);
  }

  void send(const Outgoing& frame) const {
    std::vector<char> message;
    pack(frame, message);
    ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  }

  Arena arena_;
  Descriptor socket_;
  PeerMemory peer_;
};

// An executor, and the worker that it is connected to first.
struct Pair {
  Pair(const std::string& path, int64_t limit) : listener(listen_at(path)), worker(meet()) {
    executor = std::make_unique<ConcurrentExecutor>(std::make_unique<WorkerConnection>(path, "model", "instance"),
                                                    model, nullptr, limit);
  }

  std::future<std::unique_ptr<End>> meet() const {
    return std::async(std::launch::async, [this] { return std::make_unique<End>(listener.get()); });
  }

  const Model model = description();
  const Descriptor listener;
  std::future<std::unique_ptr<End>> worker;
  std::unique_ptr<ConcurrentExecutor> executor;
};

TicketPointer ticket(float value, size_t columns = 1) {
  return std::make_shared<Ticket>(std::vector<float>(columns, value));
}

Requests batch(const std::vector<TicketPointer>& tickets) {
  Requests requests;
  for (const auto& each : tickets) requests.push_back(std::make_shared<Request>(make_request(each), nullptr, true));
  return requests;
}

void wait_over(const TicketPointer& ticket) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!ticket->is_over) {
    if (std::chrono::steady_clock::now() > deadline) broken("a request has its last response");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void cancel(const TicketPointer& ticket) {
  ticket->is_cancelled = true;
  wait_over(ticket);
  if (ticket->errors != 1 || ticket->responses != 0) broken("a cancelled request fails");
}

// A worker that is about to end takes nothing any more, and answers a batch that went to its successor: that answer
// must not reach the batch's requests.
void check_that_a_batch_is_answered_over_its_own_connection(const std::string& path) {
  Pair pair(path, 8);
  const std::unique_ptr<End> dying = pair.worker.get();
  const TicketPointer first = ticket(1), second = ticket(2);
  pair.executor->execute(batch({first}));
  dying->take();
  dying->listen_no_more();

  auto meeting = pair.meet();
  pair.executor->execute(batch({second}));
  const std::unique_ptr<End> successor = meeting.get();
  const uint32_t number = successor->take();
  dying->answer(number, {3});
  wait_over(first);
  if (first->errors != 1) broken("the batch of a connection that cannot be trusted fails");
  if (second->is_over) broken("a batch is answered over its own connection");
  successor->answer(number, second->values);
  wait_over(second);
  if (second->responses != 1 || second->errors != 0) broken("the batch gets its own answer");
}

// Requests that failed together wait for a slot to be sent again, and the worker that has all slots does not answer.
void check_that_a_request_may_be_cancelled_while_it_waits_for_a_slot(const std::string& path) {
  Pair pair(path, 2);
  const std::unique_ptr<End> worker = pair.worker.get();
  const TicketPointer first = ticket(1), second = ticket(2), other = ticket(3), last = ticket(4);
  pair.executor->execute(batch({first, second}));
  const uint32_t together = worker->take(2);
  auto executing = std::async(std::launch::async, [&] { pair.executor->execute(batch({other})); });
  const uint32_t others = worker->take();
  worker->fail_together(together, 2);
  const uint32_t alone = worker->take();
  cancel(second);

  worker->answer(alone, first->values);
  worker->answer(others, other->values);
  executing.get();
  wait_over(first);
  wait_over(other);
  pair.executor->execute(batch({last}));
  worker->answer(worker->take(), last->values);  // nothing was sent before it
  wait_over(last);
  if (last->responses != 1) broken("a cancelled request is not sent again");
}

// The socket is full of requests that are sent again, and the worker reads none.
void check_that_a_request_may_be_cancelled_while_others_cannot_be_sent_again(const std::string& path) {
  constexpr uint32_t kRequests = 40;
  constexpr size_t kColumns = 7000;  // are sent within the frame
  Pair pair(path, int64_t{2} * kRequests);
  const std::unique_ptr<End> worker = pair.worker.get();
  const TicketPointer hanging = ticket(1);
  std::vector<TicketPointer> together;
  together.reserve(kRequests);
  for (uint32_t index = 0; index < kRequests; ++index) together.push_back(ticket(static_cast<float>(index), kColumns));
  pair.executor->execute(batch({hanging}));
  pair.executor->execute(batch(together));
  const uint32_t hangs = worker->take();
  worker->fail_together(worker->take(kRequests), kRequests);
  worker->wait_ready();
  cancel(hanging);

  for (const TicketPointer& each : together) worker->answer(worker->take(), each->values);
  for (const TicketPointer& each : together) {
    wait_over(each);
    if (each->responses != 1) broken("a request that was sent again gets its own answer");
  }
  worker->answer(hangs, hanging->values);  // frees its slot
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string path = std::string(arguments[1]) + "/worker";
  check_that_a_batch_is_answered_over_its_own_connection(path);
  check_that_a_request_may_be_cancelled_while_it_waits_for_a_slot(path);
  check_that_a_request_may_be_cancelled_while_others_cannot_be_sent_again(path);
  if (Ticket::open.load() || Ticket::unreleased.load()) broken("no request is left when its executor has ended");
}
