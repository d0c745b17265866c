#include "edge.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "../frames/failure.h"
#include "connection.h"
#include "drain.h"
#include "route_options.h"
#include "router.h"

namespace pytriton::http {

namespace {

// A connection takes a descriptor, and the usual limit is for programs that call select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// For what requests need themselves, such as connections to the process behind, and for clients that come while all
// others are busy.
constexpr int kSpareDescriptors = 24;
constexpr size_t kClosedAtOnce = 16;

// At one port, a client that speaks both, such as a browser, gets all of it by HTTP/1.1; HTTP/2 has gRPC alone.
std::vector<std::string> protocols_of_grpc(const Config& config) {
  if (config.has_one_port()) return {"http/1.1", "h2"};
  return {"h2"};
}

// The server's own threads handle signals.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Edge::Edge(TRITONSERVER_Server* server, Config config)
    : server_(server),
      config_(std::move(config)),
      tls_(TlsContext::make(config_.tls_certificate, config_.tls_key, config_.tls_authorities, {"http/1.1"})),
      grpc_tls_(TlsContext::make(config_.grpc.tls_certificate, config_.grpc.tls_key, config_.grpc.tls_authorities,
                                 protocols_of_grpc(config_))),
      access_log_(config_.access_log.empty() ? nullptr : std::make_unique<AccessLog>(config_.access_log)),
      counters_(config_.counters.empty() ? nullptr
                                         : std::make_unique<SharedCounters>(config_.counters, config_.buckets)),
      recent_requests_(config_.recent_requests.empty() ? nullptr
                                                       : std::make_unique<RecentRequests>(config_.recent_requests)) {
  raise_descriptor_limit();
  set_route_options(config_.route_options());
  remove_unused(config_.upstream);  // which the server opens next
  for (unsigned count = 0; count < config_.threads; ++count) loops_.push_back(std::make_unique<Loop>(*this));
  listen(listen_on(config_.address, config_.port), Entrance::server);
  if (config_.metrics_port) listen(listen_on(config_.metrics_address, config_.metrics_port), Entrance::metrics);
  if (const GrpcOptions& grpc = config_.grpc; !grpc.address.empty() && !config_.has_one_port())
    listen(listen_on(grpc.address, grpc.port), Entrance::grpc);
  constexpr const char* kOfClouds = "0.0.0.0";
  if (config_.vertex_ai.port) listen(listen_on(kOfClouds, config_.vertex_ai.port), Entrance::vertex_ai);
  if (config_.sagemaker.port) listen(listen_on(kOfClouds, config_.sagemaker.port), Entrance::sagemaker);
  if (config_.application_listener >= 0) listen(inherited(config_.application_listener), Entrance::application);
  if (!config_.control.empty()) {
    Loop& first = *loops_.front();
    control_ = std::make_unique<Listener>(
        first, listen_on("unix:" + config_.control, 0), [&first](Descriptor socket, const std::string& /*peer*/) {
          first.add(std::make_shared<Connection>(first, Transport(std::move(socket), nullptr), "", Entrance::control));
        });
  }
  const BlockedSignals blocked;
  for (const auto& loop : loops_) threads_.emplace_back([&loop] { loop->run(); });
}

void Edge::listen(Descriptor socket, Entrance entrance) {
  const auto accepted = [this, entrance](Descriptor client, std::string peer) {
    accept(std::move(client), std::move(peer), entrance);
  };
  listeners_.push_back(std::make_unique<Listener>(*loops_.front(), std::move(socket), accepted));
}

void Edge::spare_descriptors(int newest) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  // The kernel gives the lowest number that is free.
  if (newest >= 0 && static_cast<rlim_t>(newest) + kSpareDescriptors < limit.rlim_cur) return;
  const auto most = std::max_element(loops_.begin(), loops_.end(), [](const auto& one, const auto& other) {
    return one->connections() < other->connections();
  });
  Loop* const loop = most->get();
  const size_t count = std::min(kClosedAtOnce, loop->connections() / 2 + 1);
  if (loop == loops_.front().get()) {
    loop->close_idle(count);
  } else {
    loop->post([loop, count] { loop->close_idle(count); });
  }
}

void Edge::accept(Descriptor socket, std::string peer, Entrance entrance) {
  const auto least = std::min_element(loops_.begin(), loops_.end(), [](const auto& one, const auto& other) {
    return one->connections() < other->connections();
  });
  Loop& loop = **least;
  if (is_refused(peer) || is_too_many(peer)) {
    loops_.front()->metrics().refused.add();
    return;
  }
  spare_descriptors(socket.get());
  loop.metrics().accepted.add();
  Transport transport(std::move(socket), tls_of(entrance));
  std::shared_ptr<ClientConnection> connection;
  if (entrance == Entrance::grpc) {
    connection = make_grpc_connection(loop, std::move(transport), std::move(peer), {});
  } else {
    connection = std::make_shared<Connection>(loop, std::move(transport), std::move(peer), entrance);
  }
  if (&loop == loops_.front().get()) {
    loop.add(std::move(connection));
  } else {
    loop.post([&loop, connection = std::move(connection)] { loop.add(connection); });
  }
}

const TlsContext* Edge::tls_of(Entrance entrance) const {
  switch (entrance) {
    case Entrance::server:
      return config_.has_one_port() ? grpc_tls_.get() : tls_.get();
    case Entrance::grpc:
      return grpc_tls_.get();
    case Entrance::application:
      return config_.application_tls ? tls_.get() : nullptr;
    default:
      return nullptr;
  }
}

bool Edge::is_refused(const std::string& peer) const {
  const auto found = config_.refused_ns.find(network_of(peer));
  return found != config_.refused_ns.end() && now_ns() < found->second;
}

bool Edge::is_too_many(const std::string& peer) {
  if (config_.max_connections) {
    size_t open = 0;
    for (const auto& loop : loops_) open += loop->connections();
    if (open >= config_.max_connections) return true;
  }
  if (!config_.max_connections_per_address || peer.empty()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t& count = peers_[network_of(peer)];
  if (count >= config_.max_connections_per_address) return true;
  ++count;
  return false;
}

void Edge::forget_peer(const std::string& peer) {
  if (!config_.max_connections_per_address || peer.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = peers_.find(network_of(peer));
  if (found != peers_.end() && --found->second == 0) peers_.erase(found);
}

void Edge::drain(std::function<void()> drained) {
  // The first loop accepts what waits, and hands it to the others before they are asked.
  loops_.front()->post([this, drained = std::move(drained)] {
    for (const auto& listener : listeners_) listener->close();
    call_drain_hooks();
    on_loops([](Loop& loop, std::function<void()> answered) { loop.drain(std::move(answered)); }, drained);
  });
}

void Edge::on_loops(const std::function<void(Loop& loop, std::function<void()> answered)>& task,
                    std::function<void()> done) {
  const auto rest = std::make_shared<std::atomic<size_t>>(loops_.size());
  const auto answered = [rest, done = std::move(done)] {
    if (--*rest == 0 && done) done();
  };
  for (const auto& loop : loops_) {
    Loop* const each = loop.get();
    each->post([each, task, answered] { task(*each, answered); });
  }
}

void Edge::stop(int64_t timeout_ns) {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_drained = false;
  };
  const auto state = std::make_shared<State>();
  drain([state] {
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->is_drained = true;
    state->changed.notify_all();
  });
  {
    std::unique_lock<std::mutex> lock(state->mutex);
    state->changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return state->is_drained; });
  }
  for (const auto& loop : loops_) loop->stop();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& loop : loops_) loop->close_upstreams();  // the server's own endpoint waits for their ends
  if (access_log_) access_log_->close();
}

size_t Edge::requests_in_flight() const {
  size_t total = 0;
  for (const auto& loop : loops_) total += loop->metrics().in_flight.value();
  return total;
}

std::string Edge::metrics_page() const {
  std::vector<const Metrics*> all;
  all.reserve(loops_.size());
  for (const auto& loop : loops_) all.push_back(&loop->metrics());
  return Metrics::page(all, {config_.restarts, account_->used()});
}

}  // namespace pytriton::http
