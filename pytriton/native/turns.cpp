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

// Gives each call its response, an error if need be.
void Turns::answer(const Calls& calls, Times& times) {
  try {
    exchange(calls, times);
  } catch (const PeerGone& error) {
    is_lost_ = true;
    fail_all(calls, error.code, std::string("the inference callable's process is gone: ") + error.what());
  } catch (const BadRequest& error) {  // one client's; nothing was sent
    if (calls.size() > 1) return answer_each(calls, times);
    fail_all(calls, error.code, error.what());
  } catch (const ArenaFull& error) {
    fail_all(calls, error.code, error.what());
  } catch (const std::exception& error) {  // a reply that makes no sense: the next batch starts on a new connection
    link_->channel()->shutdown();
    fail_all(calls, Code::internal, error.what());
  }
}

void Turns::answer_each(const Calls& calls, Times& times) {
  for (const auto& call : calls) answer({call}, times);
}

void Turns::exchange(const Calls& calls, Times& times) {
  Outgoing frame = encode(calls, model_);
  link_->number(frame);
  if (!times.compute_start) times.compute_start = now_ns();
  std::shared_ptr<Channel> channel = link_->send(frame);
  if (!receive(*channel, calls, frame.sequence)) {
    channel = link_->send_anew(frame);
    if (!receive(*channel, calls, frame.sequence)) throw PeerGone("two workers have died");
  }
  times.compute_end = now_ns();
  if (reply_.frame.sequence != frame.sequence || reply_.frame.requests != frame.requests) {
    throw FrameError("the reply belongs to another batch");
  }
  if (reply_.frame.kind == Kind::response) {
    respond(reply_, calls, model_);
    channel->finished(reply_);
    return;
  }
  if (reply_.frame.kind != Kind::error) throw FrameError("the reply is of another kind");
  const Status status = status_of(reply_);
  if (status.isolate && calls.size() > 1) return answer_each(calls, times);  // only the request at fault shall fail
  fail_all(calls, status.code, status.message);
}

// Waits for the reply to a batch; false if the worker died before it had read the batch.
bool Turns::receive(Channel& channel, const Calls& calls, uint32_t sequence) {
  bool was_read = false;
  try {
    for (channel.receive(reply_); reply_.frame.kind == Kind::ask; channel.receive(reply_)) {
      was_read = true;  // what the worker leaves unread from now on is our answer
      tell_cancelled(calls, sequence);
    }
  } catch (const Unread&) {
    if (was_read) throw;
    return false;
  }
  return true;
}

void Turns::tell_cancelled(const Calls& calls, uint32_t sequence) {
  std::vector<size_t> cancelled;
  for (size_t index = 0; index < calls.size(); ++index) {
    if (calls[index]->is_cancelled()) cancelled.push_back(index);
  }
  Outgoing frame = cancellation(sequence, calls.size(), cancelled, cancelled.size() == calls.size());
  link_->channel()->send(frame);
}

}  // namespace pytriton
