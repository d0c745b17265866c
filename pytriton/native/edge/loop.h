// An event loop: one thread that waits for sockets, and for the answers that other threads give.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "../frames/descriptor.h"
#include "clock.h"
#include "http_exchange.h"
#include "metrics.h"

namespace pytriton::http {

class AccessLog;
class Edge;
class Upstream;

// How a connection came: by the port of the server, by that of the ASGI application alone, by the socket of the process
// that launched the server, or by the ports of metrics, of clouds and of gRPC.
enum class Entrance { server, application, control, metrics, vertex_ai, sagemaker, grpc };

// What waits for a socket.
class Pollable {
 public:
  virtual void ready(uint32_t events) = 0;

 protected:
  ~Pollable() = default;
};

// A connection of a client. All but the descriptor is the loop's.
class ClientConnection : public Pollable {
 public:
  virtual ~ClientConnection() = default;
  virtual int descriptor() const = 0;
  virtual void continue_reading() = 0;  // after Loop::read_later()
  virtual void drain() = 0;             // closes it, at once or after the answers
  virtual void check_deadline(int64_t now) = 0;
  virtual void close() = 0;  // it has been removed
  virtual bool is_control() const { return false; }
  virtual bool is_lingering() const { return false; }  // its client has got its last answer

  // Whether it may be closed for others that come: nothing is lost but the beginning of a request.
  virtual bool is_idle() const = 0;
  virtual void evict() = 0;
  virtual int64_t idle_since() const = 0;  // when it became idle

  size_t index = 0;  // Loop's
};

class Loop {
 public:
  // A drain waits so long for a request of a connection that was accepted, or used, just before.
  static constexpr int64_t kFresh_ns = 250 * kMillisecond_ns;
  explicit Loop(Edge& edge);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run();  // until stop(); again, if it is called again

  // On any thread
  void stop();
  void post(std::function<void()> task);
  void notify(Notifiable& notifiable);  // calls its handle()
  bool is_current() const;              // whether this is its thread
  void watch_output(ClientConnection& connection, bool is_watched) const;
  bool is_draining() const { return is_draining_.load(std::memory_order_relaxed); }
  Metrics& metrics() { return metrics_; }
  AccessLog* access_log() const { return access_log_; }
  int64_t coarse_now() const { return now_.load(std::memory_order_relaxed); }  // when the loop last woke
  size_t connections() const { return open_.load(); }

  // On the loop's thread
  bool watch(int descriptor, Pollable& pollable, uint32_t events) const;
  void change(int descriptor, Pollable& pollable, uint32_t events) const;
  void unwatch(int descriptor) const;
  void after(int64_t delay_ns, std::function<void()> task);
  void read_later(ClientConnection& connection);  // calls its continue_reading() after other events
  void defer(std::function<void()> task);         // calls it when the requests that have come by now have been read
  void run_deferred();                            // now

  void add(std::shared_ptr<ClientConnection> connection);
  void replace(ClientConnection& connection, std::shared_ptr<ClientConnection> by);  // which has its socket
  void remove(ClientConnection& connection);  // drops it after the events of this turn
  HttpExchange* take_exchange(const std::shared_ptr<Share>& share);
  void give_back(HttpExchange* exchange);
  size_t close_idle(size_t most);  // those that have been idle for the longest time; how many
  size_t lingering = 0;            // connections of clients that have got their last answer

  // Closes idle connections at once and the others after their answers; then calls `drained`.
  void drain(std::function<void()> drained);
  void drain_later();  // closes connections again that are idle when clients had time for another request

  void close_upstreams();  // when run() has returned

  template <typename Object>
  void retire(std::unique_ptr<Object> object) {
    retired_.emplace_back(std::move(object));
  }

  Edge& edge() const { return edge_; }
  Upstream& upstream() { return *upstream_; }        // the server's own HTTP endpoint
  Upstream& application() { return *application_; }  // of /predict, /docs and others

 private:
  void drain_connections();
  int timeout_ms() const;
  void handle_notified();
  void handle_tasks();
  void handle_timers();
  bool has_work() const { return notified_.load() || has_tasks_.load(); }
  void wake();

  Edge& edge_;
  AccessLog* const access_log_;
  Descriptor epoll_, wake_;
  std::atomic<std::thread::id> thread_;
  std::atomic<bool> is_stopped_{false}, is_sleeping_{false}, is_draining_{false}, has_tasks_{false};
  std::atomic<int64_t> now_{0};
  std::atomic<Notifiable*> notified_{nullptr};
  std::atomic<size_t> open_{0};
  std::mutex tasks_mutex_;
  std::vector<std::function<void()>> tasks_;

  int64_t checked_at_ = 0;
  std::multimap<int64_t, std::function<void()>> timers_;
  std::vector<std::shared_ptr<ClientConnection>> connections_;
  size_t controls_ = 0;  // connections of the control socket
  std::vector<ClientConnection*> to_read_;
  std::vector<std::function<void()>> deferred_, called_;
  std::vector<std::shared_ptr<void>> retired_;
  std::unique_ptr<Upstream> upstream_, application_;
  HttpExchange* free_ = nullptr;
  size_t free_count_ = 0;
  std::vector<std::function<void()>> drained_;
  Metrics metrics_;
};

}  // namespace pytriton::http
