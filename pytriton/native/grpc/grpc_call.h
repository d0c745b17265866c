// One request on a stream, and its replies.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "grpc_stream.h"
#include "h2_connection.h"
#include "message_coding.h"

namespace pytriton::http {

class GrpcCall final : public Caller {
 public:
  GrpcCall(StreamPointer stream, ReceivedPointer message);

  // Caller
  void on_disconnect(std::function<void()> cancel) override;
  void defer(std::function<void()> task) override;
  bool reserve(uint64_t bytes, Charge& charge) override;
  void retain() override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() override;

  void cancel();  // the client has gone

  // On any thread: sends a message, a status, or both. `is_last`: of this call. `finishes`: the RPC.
  void answer(MessagePointer message, bool is_last, bool finishes, int status = 0, std::string reason = {});
  void fail(const Failure& failure, std::string_view id);  // ends the call

  // On the loop: its responses are sent after those of earlier requests that keep the order, too.
  void keep_order();

  // On the loop: further messages of the stream wait until what this returns is gone.
  std::shared_ptr<void> hold();

  std::string_view body() const { return {message_->buffer->data(), message_->size}; }
  bool is_compressed() const { return message_->is_compressed; }
  // Typed contents of the request take memory, and time of the loop. Throws Failure.
  void admit_contents(size_t bytes);
  void replace_body(std::shared_ptr<Buffer> buffer, size_t size, Charge&& charge);

  const StreamPointer& stream() const { return stream_; }
  const MethodEntry& method() const { return *stream_->method; }
  bool is_of_stream() const { return stream_->is_of_stream(); }
  H2Connection& connection() const { return *stream_->connection; }
  Loop& loop() const { return connection().loop(); }
  Edge& edge() const { return loop().edge(); }

 private:
  ~GrpcCall() = default;
  void give_up() noexcept;
  void end();
  void send(std::unique_ptr<Reply> reply);
  bool compress();  // a step of the first reply; false: none is left

  std::atomic<int> references_{0};
  const StreamPointer stream_;
  ReceivedPointer message_;
  uint64_t contents_bytes_ = 0;  // of the typed ones
  Charge contents_charge_;
  std::shared_ptr<Turn> turn_;
  uint64_t number_ = 0;  // of RecentRequests
  std::atomic<bool> is_over_{false};
  std::mutex replies_mutex_;                         // of the following two
  std::deque<std::unique_ptr<Reply>> replies_;       // that are to be compressed and sent, in their order
  bool is_compressing_ = false;                      // one thread is
  std::unique_ptr<MessageCompression> compression_;  // of the first of them; that thread's
  std::recursive_mutex cancel_mutex_;                // of the following; held during the call
  std::function<void()> cancel_;
  bool is_cancelled_ = false;
};

// Has a call answered, now or later; on the loop's thread.
void route_grpc(GrpcCall& call);

}  // namespace pytriton::http
