// Executor by the thousand through a worker that misbehaves: each request gets its own values or an error, one last
// response, and is given back. Built with ThreadSanitizer or AddressSanitizer by the tests.
// Usage: stress <folder for sockets> <seed> <batches>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "chance.h"
#include "local_worker.h"
#include "proxy/concurrent_executor.h"
#include "proxy/scheduled_executor.h"
#include "server.h"
#include "worker.h"

namespace {

using namespace pytriton;

constexpr int64_t kInFlight = 16;
constexpr std::array<uint64_t, 6> kColumns = {4, 4, 4, 1'900, 1'900, 20'000};  // within frames, and in the arena
constexpr auto kPause = std::chrono::milliseconds(5);
constexpr auto kPatience = std::chrono::seconds(60);

Model description(bool decoupled) {
  Model model;
  model.name = "model";
  model.inputs = {{"x", 11, {-1, -1}}};
  model.outputs = {{"y", 11}};
  model.batching = true;
  model.decoupled = decoupled;
  return model;
}

void wait_for(const std::atomic<int>& count, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (count.load(std::memory_order_relaxed) > 0) {
    if (std::chrono::steady_clock::now() > deadline) broken(what);
    std::this_thread::sleep_for(kPause);
  }
}

QueuedRequest queued_request(const TicketPointer& ticket, const Model& model) {
  return queued(std::make_shared<Request>(make_request(ticket), nullptr, false), model);
}

// Cancels some requests early, and all at last: a worker may wait for that.
class Clients {
 public:
  explicit Clients(uint64_t seed) : random_(seed), thread_(&Clients::cancel, this) {}
  ~Clients() {
    is_closing_ = true;
    thread_.join();
  }
  void add(const TicketPointer& ticket) {
    const std::lock_guard lock(mutex_);
    tickets_.push_back(ticket);
  }

 private:
  void cancel() {
    while (!is_closing_) {
      std::this_thread::sleep_for(kPause);
      const std::lock_guard lock(mutex_);
      std::vector<TicketPointer> open;
      for (TicketPointer& ticket : tickets_) {
        if (ticket->is_over.load(std::memory_order_relaxed)) continue;
        if (up_to(random_, 9) == 0) ticket->is_cancelled.store(true, std::memory_order_relaxed);
        open.push_back(std::move(ticket));
      }
      tickets_ = std::move(open);
    }
  }

  Random random_;
  std::atomic<bool> is_closing_{false};
  std::mutex mutex_;
  std::vector<TicketPointer> tickets_;
  std::thread thread_;
};

// The life of two instances whose batches a scheduler makes, as the server's threads hand requests over one by one. All
// that they accept is answered, unless the requests' clients or a worker end it.
template <typename AnyWorker>
void live_scheduled(const std::string& path, uint64_t requests, Random& random) {
  Model model = description(false);
  model.has_various_shapes = true;
  BatchPolicy policy;
  policy.max_rows = kMaxRequests;
  if (up_to(random, 2) == 0) policy.preferred_rows = {2};
  if (up_to(random, 2) == 0) policy.delay = std::chrono::microseconds(200);
  if (up_to(random, 2) == 0) policy.target = std::chrono::milliseconds(20);
  const auto arrivals = std::make_shared<Arrivals>();
  int64_t waiting = 0;
  auto scheduler = std::make_unique<Scheduler>(
      policy, arrivals, [&](const Scheduler::Changes& changes) { waiting += changes.waiting; },
      [](const Request& request) { return request.is_cancelled(); },
      [](const Requests& requests) { fail(requests, Times(), Code::unavailable, "too late"); });
  const std::array<std::string, 2> paths = {path, path + "2"};
  std::array<std::unique_ptr<AnyWorker>, 2> workers;
  std::array<std::unique_ptr<ScheduledExecutor>, 2> instances;
  Clients clients(random());
  for (size_t index = 0; index < paths.size(); ++index) {
    workers[index] = std::make_unique<AnyWorker>(paths[index], false, random());
    instances[index] = std::make_unique<ScheduledExecutor>(
        std::make_unique<WorkerConnection>(paths[index], "model", "instance"), model, nullptr, *scheduler);
  }
  const auto hand_over = [&](uint64_t seed) {
    Random own(seed);
    for (uint64_t left = requests; left > 0; --left) {
      const uint64_t columns = kColumns[up_to(own, kColumns.size() - 1)];
      const auto ticket =
          std::make_shared<Ticket>(std::vector<float>(columns, static_cast<float>(up_to(own, 1 << 20))));
      clients.add(ticket);
      arrivals->announce();
      if (up_to(own, 20) == 0) arrivals->announce();  // of one that does not come
      if (up_to(own, 20) == 0) std::this_thread::sleep_for(kPause / 10);
      std::vector<QueuedRequest> call(1, queued_request(ticket, model));
      scheduler->enqueue(std::move(call));
      if (up_to(own, 20) == 0) scheduler->park();
    }
  };
  std::thread other(hand_over, random());
  hand_over(random());
  other.join();
  if (up_to(random, 1) == 0) workers[up_to(random, 1)].reset();  // its requests fail, as there is no other in its place
  wait_for(Ticket::open, "every request has its last response");
  for (auto& instance : instances) instance.reset();
  scheduler.reset();
  if (waiting) broken("no request is counted as waiting that does not");
  if (Ticket::open.load() || Ticket::unreleased.load()) broken("no request is left when its instances have ended");
}

// One instance's life; at times it ends while batches are in flight.
template <typename AnyWorker>
void live(const std::string& path, bool streams, bool decoupled, uint64_t batches, Random& random) {
  const Model model = description(decoupled);
  auto worker = std::make_unique<AnyWorker>(path, streams, random());
  Clients clients(random());
  auto connection = std::make_unique<WorkerConnection>(path, "model", "instance");
  std::unique_ptr<Executor> instance;
  if (streams) {
    instance = std::make_unique<ConcurrentExecutor>(std::move(connection), model, nullptr, kInFlight);
  } else {
    instance = std::make_unique<SerialExecutor>(std::move(connection), model, nullptr);
  }
  for (; batches > 0; --batches) {
    const uint64_t columns = kColumns[up_to(random, kColumns.size() - 1)];
    Requests calls;
    for (uint64_t requests = 1 + up_to(random, kMaxRequests - 1); requests > 0; --requests) {
      const auto ticket =
          std::make_shared<Ticket>(std::vector<float>(columns, static_cast<float>(up_to(random, 1 << 20))));
      clients.add(ticket);
      calls.push_back(std::make_shared<Request>(make_request(ticket), nullptr, streams));
    }
    instance->execute(std::move(calls));
  }
  const uint64_t ending = up_to(random, 2);
  if (ending == 0) wait_for(Ticket::open, "every request has its last response");
  if (ending == 1) worker.reset();
  instance.reset();
  if (Ticket::open.load() || Ticket::unreleased.load()) broken("no request is left when its instance has ended");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::string path = std::string(arguments[1]) + "/worker";
  Random random(std::strtoull(arguments[2], nullptr, 10));
  constexpr uint64_t kBatchesPerLife = 100;
  uint64_t lives = 0;
  for (auto left = std::strtoll(arguments[3], nullptr, 10); left > 0; left -= kBatchesPerLife, ++lives) {
    const auto any_live = lives % 2 ? live<LocalWorker> : live<Worker>;
    any_live(path, lives % 3 != 0, lives % 3 == 1, kBatchesPerLife, random);
    const auto any_scheduled = lives % 2 ? live_scheduled<LocalWorker> : live_scheduled<Worker>;
    any_scheduled(path, kBatchesPerLife, random);
  }
  std::printf("%llu lives\n", static_cast<unsigned long long>(lives));
}
