#include "worker_connection.h"

#include "../frames/failure.h"
#include "../frames/json.h"

namespace pytriton {

namespace {
constexpr double kConnectTimeoutS = 10, kReconnectTimeoutS = 0.05;
constexpr double kPatienceS = 60;  // for a worker process that starts again

std::string greeting(const std::string& model, const std::string& instance) {
  std::string hello = ",\"model\":";
  append_json(hello, model);
  hello += ",\"instance\":";
  append_json(hello, instance);
  return hello;
}
}  // namespace

std::string gone(const std::string& reason) { return "the inference callable's process is gone: " + reason; }

WorkerConnection::WorkerConnection(std::string path, const std::string& model, const std::string& instance)
    : path_(std::move(path)), hello_(greeting(model, instance)), channel_(connect(path_, hello_, kConnectTimeoutS)) {}

void WorkerConnection::deliver_to(ReplyHandler& handler) {
  handler_ = std::make_shared<ReplyHandlerGuard>(handler);
  channel_->deliver_to(handler_);
}

void WorkerConnection::close() {
  channel_->say_goodbye();
  if (handler_) handler_->close();
}

const std::shared_ptr<Channel>& WorkerConnection::send(Outgoing& frame, const OnConnection& on_connection) {
  try {
    try_send(frame, on_connection);
  } catch (const PeerGone&) {
    resend(frame, on_connection);
  }
  return channel_;
}

void WorkerConnection::try_send(Outgoing& frame, const OnConnection& on_connection) {
  on_connection(channel_);
  channel_->send(frame);
}

const std::shared_ptr<Channel>& WorkerConnection::resend(Outgoing& frame, const OnConnection& on_connection) {
  connect_anew(kReconnectTimeoutS);
  frame.region = kNoRegion;
  on_connection(channel_);
  channel_->send(frame);
  return channel_;
}

void WorkerConnection::reconnect() noexcept {
  try {
    connect_anew(0);
  } catch (const std::exception&) {  // the next batch tries again, and tells
  }
}

// A worker that is about to end may still answer what it has, so the old connection is left to whoever reads it.
void WorkerConnection::connect_anew(double timeout_s) {
  channel_ = connect(path_, hello_, timeout_s, kPatienceS);
  channel_->deliver_to(handler_);
}

}  // namespace pytriton
