// A connection of a client: reads requests one by one, and hands each to its route.
#pragma once

#include <memory>
#include <string>

#include "http_exchange.h"
#include "loop.h"
#include "transport.h"

namespace pytriton::http {

class Connection final : public Pollable {
 public:
  // A drain waits so long for a request of a connection that was accepted, or used, just before.
  static constexpr int64_t kFresh_ns = 250 * kMillisecond_ns;
  static const uint32_t kEvents;  // that it waits for while its client reads answers

  Connection(Loop& loop, Transport transport, std::string peer, Entrance entrance);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void ready(uint32_t events) override;
  void resume();   // the exchange is complete, as was claimed
  void read_on();  // after a pause for other connections
  void drain();    // closes it, at once or after the answer
  void check_deadline(int64_t now);
  void close();

  bool is_control() const { return entrance_ == Entrance::control; }
  bool is_leaving() const { return is_leaving_; }
  int descriptor() const { return transport_.descriptor(); }
  size_t index = 0;  // Loop's

 private:
  enum class Step { go_on, wait, closed };

  void proceed();
  void serve();
  Step receive();
  Step parse();
  Step dispatch();
  Step complete();
  Step refuse(int status, const char* reason);
  Step leave();  // closes it when the client has read the answer
  void discard();
  void remove();
  bool make_room();

  Loop& loop_;
  Transport transport_;
  const std::string peer_;
  const Entrance entrance_;
  HttpExchange* exchange_ = nullptr;  // nullptr while nothing comes
  bool is_dispatched_ = false;
  bool has_unparsed_ = false;  // bytes in the buffer that the parser has not seen
  bool is_readable_ = false, is_half_closed_ = false, is_broken_ = false, is_leaving_ = false;
  bool is_removed_ = false;
  size_t left_over_ = 0;   // bytes that were discarded
  int64_t since_ = 0;      // when the connection became idle, the request began to come, or it was left
  size_t turn_bytes_ = 0;  // received in one go
  unsigned turns_ = 0;     // requests answered in one go
};

}  // namespace pytriton::http
