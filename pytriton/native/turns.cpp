#include "turns.h"

#include "failure.h"

namespace pytriton {

namespace {
void fail_all(const Calls& calls, Code code, const std::string& message) {
  for (const auto& call : calls) call->fail(code, message);
}
}  // namespace

void Turns::execute(Calls calls) {
  Times times;
  Calls waiting;
  for (const auto& call : calls) {
    if (!model_.has_sequences && call->is_cancelled()) {
      call->fail(Code::cancelled, "the request was cancelled");
    } else {
      waiting.push_back(call);
    }
  }
  if (!waiting.empty()) answer(waiting, times);
  if (!waiting.empty() && times.compute_end) {
    ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, batch_size(waiting, model_), times.start,
                                                            times.compute_start, times.compute_end, now_ns()));
  }
  for (const auto& call : calls) call->count(times);
  for (const auto& call : calls) call->send(true);
  if (!is_lost_) return;
  is_lost_ = false;
  waiting.clear();
  calls.clear();  // their requests are the server's again
  link_->restore();
}

// Gives each call its response, an error if need be; leaves those that were handed to the worker.
void Turns::answer(Calls& calls, Times& times) {
  try {
    exchange(calls, times);
  } catch (const PeerGone& error) {
    is_lost_ = true;
    fail_all(calls, error.code, std::string("the inference callable's process is gone: ") + error.what());
  } catch (const ArenaFull& error) {
    fail_all(calls, error.code, error.what());
  } catch (const std::exception& error) {  // a reply that makes no sense: the next batch starts on a new connection
    link_->channel()->shutdown();
    fail_all(calls, Code::internal, error.what());
  }
}

void Turns::answer_each(const Calls& calls, Times& times) {
  for (const auto& call : calls) {
    Calls alone{call};
    answer(alone, times);
  }
}

void Turns::exchange(Calls& calls, Times& times) {
  Calls refused;  // they have their errors
  Outgoing frame = encode(calls, model_, refused);
  if (calls.empty()) return;
  link_->number(frame);
  if (!times.compute_start) times.compute_start = now_ns();
  Exchange exchange{calls, times, frame.number, frame.requests};
  const Current current(exchange_, exchange);
  const Link::Before before = [&](const std::shared_ptr<Channel>& next) { exchange.channel = next.get(); };
  std::shared_ptr<Channel> channel =
      link_->send(frame, before);  // which has the answer, if the worker is in this process
  for (bool is_first = true; !exchange.is_over;) {
    try {
      channel->receive(reply_);
    } catch (const Unread&) {  // it died before it had read the batch
      if (!is_first || exchange.was_read) throw;
      is_first = false;
      channel = link_->send_anew(frame, before);
      continue;
    }
    take(*channel, reply_);
  }
  is_lost_ = false;  // requests that are sent again one by one may have found a worker that came back
  if (exchange.failure) std::rethrow_exception(exchange.failure);
  if (exchange.isolate) answer_each(calls, times);  // only the request at fault shall fail
}

void Turns::take(Channel& channel, const Reply& reply) noexcept {
  Exchange* exchange = exchange_;
  if (!exchange || exchange->channel != &channel) return;  // a worker that ends has nothing to say of this batch
  try {
    read(channel, reply, *exchange);
  } catch (...) {
    exchange->failure = std::current_exception();
    exchange->is_over = true;
  }
}

void Turns::read(Channel& channel, const Reply& reply, Exchange& exchange) {
  const Frame& frame = reply.frame;
  if (frame.kind == Kind::ask) {
    exchange.was_read = true;  // what the worker leaves unread from now on is our answer
    return tell_cancelled(channel, exchange);
  }
  exchange.times.compute_end = now_ns();
  exchange.is_over = true;
  if (frame.number != exchange.number || frame.requests != exchange.requests) {
    throw FrameError("the reply belongs to another batch");
  }
  if (frame.kind == Kind::response) {
    respond(reply, exchange.calls, model_);
    return channel.finished(reply);
  }
  if (frame.kind != Kind::error) throw FrameError("the reply is of another kind");
  const Status status = status_of(reply);
  exchange.isolate = status.isolate && exchange.calls.size() > 1;
  if (!exchange.isolate) fail_all(exchange.calls, status.code, status.message);
}

void Turns::tell_cancelled(Channel& channel, const Exchange& exchange) {
  std::vector<size_t> cancelled;
  for (size_t index = 0; index < exchange.calls.size(); ++index) {
    if (exchange.calls[index]->is_cancelled()) cancelled.push_back(index);
  }
  Outgoing frame =
      cancellation(exchange.number, exchange.calls.size(), cancelled, cancelled.size() == exchange.calls.size());
  channel.send(frame);
}

}  // namespace pytriton
