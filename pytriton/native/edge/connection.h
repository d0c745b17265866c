// A connection of a client: reads requests one by one, and hands each to its route.
#pragma once

#include <memory>
#include <string>

#include "http_exchange.h"
#include "loop.h"
#include "progress.h"
#include "transport.h"

namespace pytriton::http {

class Connection final : public ClientConnection {
 public:
  Connection(Loop& loop, Transport transport, std::string peer, Entrance entrance);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void ready(uint32_t events) override;
  void resume();  // the exchange is complete, as was claimed
  void continue_reading() override;
  void drain() override;
  void check_deadline(int64_t now) override;
  void close() override;
  bool is_idle() const override;
  void evict() override;
  int64_t idle_since() const override { return since_; }

  Entrance entrance() const { return entrance_; }
  bool is_control() const override { return entrance_ == Entrance::control; }
  bool is_lingering() const override { return is_lingering_; }
  int descriptor() const override { return transport_.descriptor(); }

 private:
  enum class Step { go_on, wait, closed };
  enum class Watched { nothing, body, answer, unread };

  void proceed();
  void serve();
  Step receive();
  Step parse();
  Step hand_over();  // to a connection of HTTP/2
  Step dispatch();
  Step complete();
  Step refuse(Response&& response);
  Step admit();
  Step linger();  // closes it when the client has read the answer
  void discard();
  void remove();
  Refusal make_room();
  bool is_stalled(Watched watched, int64_t now, int64_t bytes);
  void cut_off();

  Loop& loop_;
  Transport transport_;
  const std::string peer_;
  const Entrance entrance_;
  const std::shared_ptr<Share> share_;
  HttpExchange* exchange_ = nullptr;  // nullptr while nothing comes
  bool may_be_http_2_;                // nothing has been parsed, and gRPC comes to this port, too
  bool is_dispatched_ = false;
  bool has_unparsed_ = false;  // bytes in the buffer that the parser has not seen
  bool is_readable_ = false, is_half_closed_ = false, is_broken_ = false, is_lingering_ = false;
  bool is_removed_ = false;
  bool is_admitted_ = false;    // the head of a request with a large body
  bool may_be_unread_ = false;  // the last answer, of which the kernel has the rest
  Watched watched_ = Watched::nothing;
  Progress progress_;
  int64_t received_ = 0;   // bytes
  int64_t since_ = 0;      // when the connection became idle, the request began to come, or it was left
  size_t turn_bytes_ = 0;  // received in one go
  unsigned turns_ = 0;     // requests answered in one go
};

}  // namespace pytriton::http
