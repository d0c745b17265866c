// The way to the worker of an instance, which may die and come back. For one sending thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "channel.h"
#include "reply_handler.h"

namespace pytriton {

// What clients are told when the worker that had their requests has gone.
std::string gone(const std::string& reason);

class WorkerConnection {
 public:
  // Throws PeerGone if no worker answers in time.
  WorkerConnection(std::string path, const std::string& model, const std::string& instance);

  const std::shared_ptr<Channel>& channel() const { return channel_; }

  // Has what a worker in this process sends given to a handler, over this connection and those that follow.
  void deliver_to(ReplyHandler& handler);
  // Dismisses the worker; the handler gets nothing any more when this returns.
  void close();

  // Gives a batch the next number.
  void number(Outgoing& frame) { frame.number = ++number_; }

  // Is told of each connection before a batch is sent over it, as replies may come before that returns.
  using OnConnection = std::function<void(const std::shared_ptr<Channel>&)>;

  // Sends a batch, over a new connection if the old one has ended. Throws PeerGone or ArenaFull.
  const std::shared_ptr<Channel>& send(Outgoing& frame, const OnConnection& on_connection);

  // Sends a batch over the connection that there is. Throws as send.
  void try_send(Outgoing& frame, const OnConnection& on_connection);

  // Sends over a new connection a batch that nobody has read. Throws as send.
  const std::shared_ptr<Channel>& resend(Outgoing& frame, const OnConnection& on_connection);

  // Waits for a worker that has died to come back, if anybody starts it again. To be called without a batch: the server
  // hands batches to other instances meanwhile.
  void reconnect() noexcept;

 private:
  void connect_anew(double timeout_s);

  std::string path_, hello_;
  uint32_t number_ = 0;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<ReplyHandlerGuard> handler_;
};

}  // namespace pytriton
