// The edge of one server: its loops, its listening sockets, and what they share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../frames/server_api.h"
#include "access.h"
#include "access_log.h"
#include "account.h"
#include "config.h"
#include "listener.h"
#include "loop.h"
#include "recent_requests.h"
#include "shared_counters.h"
#include "sites.h"
#include "tls.h"

namespace pytriton::http {

class Edge {
 public:
  // Listens, and answers from then on. Throws Failure.
  Edge(TRITONSERVER_Server* server, Config config);

  // Refuses new connections, closes idle ones, and has the others closed after their answers. `drained`, which may be
  // empty, is called on a thread of ours when all are.
  void drain(std::function<void()> drained);

  // Calls `done`, which may be empty, when each loop's thread has called `task`, and that has called what it is given.
  void on_loops(const std::function<void(Loop& loop, std::function<void()> answered)>& task,
                std::function<void()> done);

  // Ends the threads, at the latest after the time.
  void stop(int64_t timeout_ns);

  const Config& config() const { return config_; }
  TRITONSERVER_Server* server() const { return server_; }
  const Access& access() const { return access_; }
  const Access& predict_access() const { return predict_access_; }
  const Access& grpc_access() const { return grpc_access_; }
  const Sites& sites() const { return sites_; }
  AccessLog* access_log() const { return access_log_.get(); }
  Account& account() const { return *account_; }
  SharedCounters* counters() const { return counters_.get(); }
  RecentRequests* recent_requests() const { return recent_requests_.get(); }
  std::string metrics_page() const;
  size_t requests_in_flight() const;

  // Whether the models are there that whoever launched the server has it load.
  bool has_models() const { return has_models_.load(std::memory_order_relaxed); }
  void set_has_models(bool has) { has_models_.store(has, std::memory_order_relaxed); }

  // On the first loop: has others closed that are idle if few descriptors are left.
  void spare_descriptors(int newest);

  // On any thread: a connection of a client's address was closed.
  void forget_peer(const std::string& peer);

 private:
  void listen(Descriptor socket, Entrance entrance);
  void accept(Descriptor socket, std::string peer, Entrance entrance);
  const TlsContext* tls_of(Entrance entrance) const;  // nullptr: not encrypted
  bool is_too_many(const std::string& peer);
  bool is_refused(const std::string& peer) const;  // its requests preceded several crashes

  TRITONSERVER_Server* server_;
  const Config config_;
  const std::shared_ptr<Account> account_ =
      std::make_shared<Account>(config_.max_buffered_bytes, config_.max_buffered_bytes_per_address);
  const Access access_{config_.access}, predict_access_{config_.predict_access}, grpc_access_{config_.grpc.access};
  const Sites sites_{config_.hosts, config_.origins, config_.checks_hosts};
  std::atomic<bool> has_models_{!config_.waits_for_models};
  const std::unique_ptr<TlsContext> tls_, grpc_tls_;
  const std::unique_ptr<AccessLog> access_log_;
  const std::unique_ptr<SharedCounters> counters_;
  const std::unique_ptr<RecentRequests> recent_requests_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // of the first loop, without that of the control socket
  std::unique_ptr<Listener> control_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;                               // of the following
  std::unordered_map<std::string, size_t> peers_;  // connections of each network, if there is a limit
};

}  // namespace pytriton::http
