// The front end of one server: its loops, its listening sockets, and what they share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../server_api.h"
#include "access.h"
#include "access_log.h"
#include "config.h"
#include "listener.h"
#include "loop.h"
#include "shared_counters.h"
#include "tls.h"

namespace pytriton::http {

class Front {
 public:
  // Listens, and answers from then on. Throws Failure.
  Front(TRITONSERVER_Server* server, Config config);

  // Refuses new connections, closes idle ones, and has the others closed after their answers. `drained`, which may be
  // empty, is called on a thread of ours when all are.
  void drain(std::function<void()> drained);

  // Ends the threads, at the latest after the time.
  void stop(int64_t timeout_ns);

  const Config& config() const { return config_; }
  TRITONSERVER_Server* server() const { return server_; }
  const Access& access() const { return access_; }
  AccessLog* access_log() const { return access_log_.get(); }
  SharedCounters* counters() const { return counters_.get(); }
  std::string metrics_page() const;
  size_t requests_in_flight() const;

  // Whether the models are there that whoever launched the server has it load.
  bool has_models() const { return has_models_.load(std::memory_order_relaxed); }
  void set_has_models() { has_models_.store(true, std::memory_order_relaxed); }

  // On any thread: a connection of a client's address was closed.
  void forget_peer(const std::string& peer);

 private:
  void listen(Descriptor socket, Entrance entrance);
  void accept(Descriptor socket, std::string peer, Entrance entrance);
  bool is_too_many(const std::string& peer);

  TRITONSERVER_Server* server_;
  const Config config_;
  const Access access_{config_.access};
  std::atomic<bool> has_models_{!config_.waits_for_models};
  const std::unique_ptr<TlsContext> tls_;
  const std::unique_ptr<AccessLog> access_log_;
  const std::unique_ptr<SharedCounters> counters_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // of the first loop, without that of the control socket
  std::unique_ptr<Listener> control_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;                               // of the following
  std::unordered_map<std::string, size_t> peers_;  // connections of each address, if there is a limit
};

}  // namespace pytriton::http
