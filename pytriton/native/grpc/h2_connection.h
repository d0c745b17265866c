// A connection of HTTP/2, with nghttp2: its streams are RPCs.
//
// It stays with its loop. A lock guards the session and what is to be sent. Nothing of the server's is called with the
// lock held: calls whose client has gone are collected, and cancelled after it.
#pragma once

#include <nghttp2/nghttp2.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../edge/edge.h"
#include "../edge/loop.h"
#include "../edge/progress.h"
#include "../edge/transport.h"
#include "allowance.h"
#include "grpc_stream.h"

namespace pytriton::http {

constexpr size_t kUnchargedStreams = 64;  // of a connection: while it has no more, little of each costs nothing

class H2Connection final : public ClientConnection, public std::enable_shared_from_this<H2Connection> {
 public:
  H2Connection(Loop& loop, Transport transport, std::string peer, std::string received);
  ~H2Connection() override;
  H2Connection(const H2Connection&) = delete;
  H2Connection& operator=(const H2Connection&) = delete;

  // ClientConnection
  void ready(uint32_t events) override;
  int descriptor() const override { return transport_.descriptor(); }
  void continue_reading() override;
  void drain() override;
  void check_deadline(int64_t now) override;
  void close() override;
  bool is_lingering() const override { return is_lingering_; }
  bool is_idle() const override;
  void evict() override;
  int64_t idle_since() const override { return active_at_; }

  // On any thread: has a reply sent, by this thread if few requests are in flight, or it is large; else by the loop.
  void deliver(std::unique_ptr<Reply> reply);
  void apply_on_loop(Reply& reply);

  // On the loop: the next messages of a stream, one of which was being prepared.
  void resume(const StreamPointer& stream);

  Loop& loop() const { return loop_; }
  const std::string& peer() const { return peer_; }
  const std::shared_ptr<Share>& share() const { return share_; }
  std::mutex& mutex() { return mutex_; }

 private:
  friend struct H2Callbacks;
  static constexpr size_t kFirstInputBytes = 64 << 10;
  static constexpr size_t kMostCalls = 1024;  // in flight on a stream
  static constexpr int64_t kBurst = 1000, kAbandonedPerSecond = 200, kSettingsPerSecond = 10;
  struct Segment {
    std::string own;
    iovec part{};
    std::shared_ptr<const void> owner;
  };
  struct Arrival {
    StreamPointer stream;
    ReceivedPointer message;
  };
  using Cancelled = std::vector<GrpcCall*>;  // with a reference each

  bool receive();                // false: the connection is over
  ssize_t take_input(char* to);  // as Transport::receive()
  void dispatch(const Arrival& arrival);
  void begin(const StreamPointer& stream, const ReceivedPointer& message);
  void flush();
  void mark_dirty();
  void linger();
  void discard();
  void remove();
  static void cancel(Cancelled& calls);
  void expire();
  void arm(int64_t deadline);

  // With the lock
  void apply(Reply& reply);
  void take_turns(GrpcStream& stream);
  void add_message(GrpcStream& stream, MessagePointer&& message);
  void finish(GrpcStream& stream, int status, std::string reason);
  void submit(GrpcStream& stream);
  bool send();  // false: the connection is broken
  static void collect(const GrpcStream& stream, Cancelled& to);
  bool append_data(GrpcStream& stream, const char* data, size_t size);
  bool complete_message(GrpcStream& stream);
  bool reserve(GrpcStream& stream, size_t more) const;
  void consume(GrpcStream& stream, size_t size);
  bool admit_head(GrpcStream& stream) const;
  void on_ping();
  void on_settings();
  void on_abandoned();
  bool has_stalled(GrpcStream& stream, int64_t now) const;
  void report(const GrpcStream& stream, int status);

  Loop& loop_;
  Transport transport_;
  const std::string peer_;
  const std::shared_ptr<Share> share_;

  // The loop's
  bool is_readable_ = true, is_dirty_ = false, is_lingering_ = false, is_removed_ = false, is_broken_ = false;
  bool has_preface_ = false;
  std::string received_;                   // before there was this connection
  size_t input_bytes_ = kFirstInputBytes;  // that are read at once
  int64_t began_at_, active_at_, drained_at_ = 0, left_at_ = 0, pinged_at_ = 0;
  int64_t armed_ = 0;  // when expire() will be called; 0: it will not

  mutable std::mutex mutex_;  // of the following
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, StreamPointer> streams_;
  std::deque<Segment> out_;
  size_t out_bytes_ = 0;
  Progress progress_;
  bool is_watched_ = false;
  bool is_blocked_ = false, is_failed_ = false, is_closed_ = false, is_going_ = false;
  std::vector<Arrival> arrivals_;
  Cancelled cancelled_;
  std::multimap<int64_t, GrpcStream*> deadlines_;
  int64_t last_ping_at_ = 0;
  int ping_strikes_ = 0;
  bool is_ping_answered_ = true, is_warned_ = false;
  Allowance abandoned_{kBurst, kAbandonedPerSecond}, settings_{kBurst, kSettingsPerSecond};
};

}  // namespace pytriton::http
