// A connection to a worker in any process: frames on a SEQPACKET Unix socket, large tensors through two arenas.
#pragma once

#include <atomic>
#include <mutex>

#include "../frames/descriptor.h"
#include "channel.h"

namespace pytriton {

class SocketChannel : public Channel {
 public:
  SocketChannel(Descriptor socket, std::unique_ptr<Arena> arena, PeerMemory peer);

  void send(Outgoing& frame) override;
  bool send_at_once(Outgoing& frame) override;
  void receive(Reply& reply) override;
  void finished(const Reply& reply) override;
  void release(bool taken, bool at_once = false) override;
  void shutdown() override;
  bool is_shut() const override { return is_shut_; }
  void say_goodbye() override;

 private:
  bool send_locked(Outgoing& frame, int flags);
  bool spill(Outgoing& frame, int flags);
  void take_back(const Outgoing& frame);
  void take_released(std::vector<uint64_t>& into);
  void put_back(const std::vector<uint64_t>& released);
  void accept(Reply& reply, bool spilled);

  Descriptor socket_;
  std::unique_ptr<Arena> arena_;
  PeerMemory peer_;
  std::mutex sending_;
  std::vector<char> message_;  // to be sent
  std::mutex releasing_;
  std::vector<uint64_t> released_;
  std::atomic<bool> is_shut_{false};
  std::atomic<uint32_t> taken_{0};  // streamed replies in all
  uint32_t reported_taken_ = 0;     // of which the worker knows
};

}  // namespace pytriton
