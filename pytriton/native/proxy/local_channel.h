// A connection to a worker in this process: frames are handed over in calls of functions. A batch is answered within
// the call that hands it over, if its worker answers at once; other replies come when they will, on the worker's
// threads.
#pragma once

#include <atomic>
#include <mutex>

#include "channel.h"
#include "reply_handler.h"

namespace pytriton {

class LocalChannel : public Channel {
 public:
  explicit LocalChannel(uint64_t number) : number_(number) {}

  void send(Outgoing& frame) override;
  bool send_at_once(Outgoing& frame) override;
  // Throws PeerGone: whoever waits for an answer has got none.
  void receive(Reply& reply) override;
  bool is_local() const override { return true; }
  void deliver_to(const std::shared_ptr<ReplyHandlerGuard>& handler) override;
  void finished(const Reply&) override {}
  void release(bool, bool) override {}
  void shutdown() override;
  bool is_shut() const override { return is_shut_; }
  void say_goodbye() override;

  // What the worker does, on any thread. Of tensors in memory of their own there are addresses, in the frame's order.
  // False if nobody takes it.
  bool take(std::string_view message, const uint64_t* addresses) noexcept;
  void lose() noexcept;

 private:
  std::shared_ptr<ReplyHandlerGuard> handler();

  const uint64_t number_;
  std::atomic<bool> is_shut_{false};
  std::mutex mutex_;
  std::shared_ptr<ReplyHandlerGuard> handler_;
};

}  // namespace pytriton
