#include "serial_executor.h"

#include "../frames/failure.h"

namespace pytriton {

namespace {
void fail_all(const Requests& requests, Code code, const std::string& message) {
  for (const auto& request : requests) request->fail(code, message);
}
}  // namespace

void SerialExecutor::execute(Requests requests) {
  Times times;
  Requests waiting;
  for (const auto& request : requests) {
    if (!model_.has_sequences && request->is_cancelled()) {
      request->fail(Code::cancelled, "the request was cancelled");
    } else {
      waiting.push_back(request);
    }
  }
  if (!waiting.empty()) answer(waiting, times);
  if (!waiting.empty() && times.compute_end) {
    ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, batch_size(waiting, model_), times.start,
                                                            times.compute_start, times.compute_end, now_ns()));
  }
  finish(requests, times);
  if (!worker_died_) return;
  worker_died_ = false;
  waiting.clear();
  requests.clear();  // their requests are the server's again
  worker_->reconnect();
}

// Gives each request its response, an error if need be; leaves those that were handed to the worker.
void SerialExecutor::answer(Requests& requests, Times& times) {
  try {
    exchange(requests, times);
  } catch (const PeerGone& error) {
    worker_died_ = true;
    fail_all(requests, error.code, gone(error.what()));
  } catch (const ArenaFull& error) {
    fail_all(requests, error.code, error.what());
  } catch (const std::exception& error) {  // a reply that makes no sense: the next batch starts on a new connection
    worker_->channel()->shutdown();
    fail_all(requests, Code::internal, error.what());
  }
}

void SerialExecutor::answer_each(const Requests& requests, Times& times) {
  for (const auto& request : requests) {
    Requests alone{request};
    answer(alone, times);
  }
}

void SerialExecutor::exchange(Requests& requests, Times& times) {
  Requests refused;  // they have their errors
  Outgoing frame = encode(requests, model_, refused);
  if (requests.empty()) return;
  worker_->number(frame);
  if (!times.compute_start) times.compute_start = now_ns();
  Exchange exchange{requests, times, frame.number, frame.requests};
  const Current current(exchange_, exchange);
  const WorkerConnection::OnConnection on_connection = [&](const std::shared_ptr<Channel>& next) {
    exchange.channel = next.get();
  };
  std::shared_ptr<Channel> channel =
      worker_->send(frame, on_connection);  // which has the answer, if the worker is in this process
  for (bool is_first = true; !exchange.is_over;) {
    try {
      channel->receive(reply_);
    } catch (const Unread&) {  // it died before it had read the batch
      if (!is_first || exchange.was_read) throw;
      is_first = false;
      channel = worker_->resend(frame, on_connection);
      continue;
    }
    handle(*channel, reply_);
  }
  worker_died_ = false;  // requests that are sent again one by one may have found a worker that came back
  if (exchange.failure) std::rethrow_exception(exchange.failure);
  if (exchange.isolate) answer_each(requests, times);  // only the request at fault shall fail
}

void SerialExecutor::handle(Channel& channel, const Reply& reply) noexcept {
  Exchange* exchange = exchange_;
  if (!exchange || exchange->channel != &channel) return;  // a worker that ends has nothing to say of this batch
  try {
    read(channel, reply, *exchange);
  } catch (...) {
    exchange->failure = std::current_exception();
    exchange->is_over = true;
  }
}

void SerialExecutor::read(Channel& channel, const Reply& reply, Exchange& exchange) {
  const Frame& frame = reply.frame;
  if (frame.kind == Kind::ask) {
    exchange.was_read = true;  // what the worker leaves unread from now on is our answer
    return send_cancellation(channel, exchange);
  }
  exchange.times.compute_end = now_ns();
  exchange.is_over = true;
  if (frame.number != exchange.number || frame.requests != exchange.requests) {
    throw FrameError("the reply belongs to another batch");
  }
  if (frame.kind == Kind::response) {
    respond(reply, exchange.batch, model_);
    return channel.finished(reply);
  }
  if (frame.kind != Kind::error) throw FrameError("the reply is of another kind");
  const Status status = status_of(reply);
  exchange.isolate = status.isolate && exchange.batch.size() > 1;
  if (!exchange.isolate) fail_all(exchange.batch, status.code, status.message);
}

void SerialExecutor::send_cancellation(Channel& channel, const Exchange& exchange) {
  Outgoing frame = cancellation(exchange.number, exchange.batch);
  channel.send(frame);
}

}  // namespace pytriton
