#include "grpc_call.h"

#include <algorithm>
#include <new>

#include "../edge/background.h"
#include "grpc_answer.h"

namespace pytriton::http {

namespace grpc {

int status_of(Code code) {
  switch (code) {
    case Code::internal:
      return kInternal;
    case Code::not_found:
      return kNotFound;
    case Code::invalid_argument:
      return kInvalidArgument;
    case Code::unavailable:
      return kUnavailable;
    case Code::unsupported:
      return kUnimplemented;
    case Code::already_exists:
      return kAlreadyExists;
    case Code::cancelled:
      return kCancelled;
    default:
      return kUnknown;
  }
}

}  // namespace grpc

void Reply::handle() {
  const std::unique_ptr<Reply> self(this);
  stream->connection->apply_on_loop(*this);
}

GrpcCall::GrpcCall(StreamPointer stream, ReceivedPointer message)
    : stream_(std::move(stream)), message_(std::move(message)) {
  loop().metrics().in_flight.add();
  if (RecentRequests* const recent = edge().recent_requests())
    number_ = recent->begin(connection().peer(), stream_->request.method, stream_->path, message_->size);
  const std::lock_guard<std::mutex> lock(connection().mutex());
  stream_->calls.push_back(this);
}

// The last reference answers while it still is one: the connection, which knows calls that are not over, may take
// another.
void GrpcCall::release() {
  int count = references_.load(std::memory_order_acquire);
  do {
    if (count == 1 && !is_over_) give_up();
  } while (!references_.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel));
  if (count == 1) delete this;
}

void GrpcCall::give_up() noexcept {
  try {
    answer(nullptr, true, true, grpc::kInternal, "the request was not answered");
  } catch (const std::exception&) {
    end();
  }
}

void GrpcCall::end() {
  if (is_over_.exchange(true)) return;
  loop().metrics().in_flight.subtract();
  if (RecentRequests* const recent = edge().recent_requests()) recent->end(number_);
  const std::lock_guard<std::mutex> lock(connection().mutex());
  auto& calls = stream_->calls;
  calls.erase(std::remove(calls.begin(), calls.end(), this), calls.end());
}

void GrpcCall::on_disconnect(std::function<void()> cancel) {
  const std::lock_guard<std::recursive_mutex> lock(cancel_mutex_);
  if (is_cancelled_ && cancel) {
    cancel();
  } else {
    cancel_ = std::move(cancel);
  }
}

void GrpcCall::cancel() {
  const std::lock_guard<std::recursive_mutex> lock(cancel_mutex_);
  if (std::exchange(is_cancelled_, true) || !cancel_) return;
  const auto cancel = std::exchange(cancel_, nullptr);
  cancel();
}

void GrpcCall::defer(std::function<void()> task) {
  if (!loop().is_current()) return task();
  loop().defer(std::move(task));
}

bool GrpcCall::reserve(uint64_t bytes, Charge& charge) {
  Charge reserved(connection().share());
  if (reserved.resize(bytes) != Refusal::none) return false;
  charge = std::move(reserved);
  return true;
}

void GrpcCall::answer(MessagePointer message, bool is_last, bool finishes, int status, std::string reason) {
  if (is_last) {
    if (is_over_) return;
    end();
  }
  auto reply = std::make_unique<Reply>();
  reply->stream = stream_;
  reply->message = std::move(message);
  reply->turn = turn_;
  reply->ends_call = is_last;
  reply->finishes = finishes;
  reply->status = status;
  reply->reason = std::move(reason);
  send(std::move(reply));
}

void GrpcCall::send(std::unique_ptr<Reply> reply) {
  const Coding coding = stream_->coding;
  if (coding == Coding::identity) return connection().deliver(std::move(reply));
  const bool is_large = reply->message && reply->message->left() > Deflater::kAtOnce;
  {
    const std::lock_guard<std::mutex> lock(replies_mutex_);
    replies_.push_back(std::move(reply));
    if (std::exchange(is_compressing_, true)) return;
  }
  if (is_large)
    return run_in_steps(connection().peer(), [this, reference = Reference<GrpcCall>(*this)] { return compress(); });
  while (compress()) {
  }
}

bool GrpcCall::compress() {
  if (!compression_) {
    const std::lock_guard<std::mutex> lock(replies_mutex_);
    try {
      if (const MessagePointer& message = replies_.front()->message)
        compression_ = std::make_unique<MessageCompression>(message, stream_->coding, connection().share());
    } catch (const std::bad_alloc&) {  // it is sent as it is
    }
  }
  if (compression_ && compression_->step()) return true;
  compression_.reset();
  std::unique_ptr<Reply> done;
  {
    const std::lock_guard<std::mutex> lock(replies_mutex_);
    done = std::move(replies_.front());
    replies_.pop_front();
  }
  connection().deliver(std::move(done));
  const std::lock_guard<std::mutex> lock(replies_mutex_);
  is_compressing_ = !replies_.empty();
  return is_compressing_;
}

void GrpcCall::fail(const Failure& failure, std::string_view id) {
  // The models of a server that stops go one by one.
  if (failure.code == Code::not_found && loop().is_draining())
    return answer(nullptr, true, true, grpc::kUnavailable, "the server is stopping");
  if (method().method == Method::stream_infer) return answer(make_error_message(failure.what(), id), true, false);
  answer(nullptr, true, true, grpc::status_of(failure.code), failure.what());
}

void GrpcCall::keep_order() {
  turn_ = std::make_shared<Turn>();
  const std::lock_guard<std::mutex> lock(connection().mutex());
  stream_->turns.push_back(turn_);
}

std::shared_ptr<void> GrpcCall::hold() {
  ++stream_->preparing;
  return {nullptr, [stream = stream_](void*) {
            stream->connection->loop().post([stream] { stream->connection->resume(stream); });
          }};
}

void GrpcCall::admit_contents(size_t bytes) {
  constexpr uint64_t kMost = uint64_t{16} << 20;  // are read in less than a second
  constexpr uint64_t kLargest = 16;               // bytes that one takes while it is read: a number, twice
  contents_bytes_ += bytes;
  const uint64_t most = std::min(kMost, edge().config().max_json_bytes);
  if (contents_bytes_ > most) {
    throw Failure(Code::invalid_argument, "the contents of inputs have more than " + std::to_string(most) +
                                              " bytes: send them as raw_input_contents");
  }
  if (!reserve(kLargest * contents_bytes_, contents_charge_))
    throw Failure(Code::unavailable, "there is no memory for the contents of inputs; try again later");
}

void GrpcCall::replace_body(std::shared_ptr<Buffer> buffer, size_t size, Charge&& charge) {
  auto message = std::make_shared<Received>();
  message->buffer = std::move(buffer);
  message->size = size;
  message->charge = std::move(charge);
  message_ = std::move(message);
}

}  // namespace pytriton::http
