// A request of a connection and its answer, which any thread may give.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "../frames/spinning_mutex.h"
#include "buffer.h"
#include "exchange.h"
#include "metrics.h"
#include "request_parser.h"

namespace pytriton::http {

class Connection;
class Loop;
class Transport;

// What the exchange needs of its connection, from dispatch() until is_complete().
struct Client {
  Loop* loop = nullptr;
  Connection* connection = nullptr;
  Transport* transport = nullptr;
  std::string_view peer;
  bool is_encrypted = false;
  bool keeps_alive = false;  // else the answer says that the connection is closed after it
};

// What the loop is told of by other threads; is there until then.
class Notifiable {
 public:
  virtual void handle() = 0;  // on the loop's thread

 protected:
  ~Notifiable() = default;

 private:
  friend class Loop;
  Notifiable* next_ = nullptr;
};

// Belongs to one connection. The loop and the thread that answers share it as follows: while the
// exchange is busy, it and the sending side of the connection belong to the route, unless send() leaves the answer to
// the loop. The loop may ask with claim() to be told of the end. It gets the exchange through Loop::notify() for both.
class HttpExchange final : public Exchange, public Notifiable {
 public:
  explicit HttpExchange(const Limits& limits) : parser(limits) {}

  // Exchange
  const Request& request() const override { return request_; }
  void send(Response&& response) override;
  void begin(Response&& head) override;
  void write(std::string&& chunk) override;
  void end() override;
  size_t unsent() const override { return unsent_.load(std::memory_order_relaxed); }
  void on_disconnect(std::function<void()> cancel) override;
  void defer(std::function<void()> task) override;
  bool reserve(uint64_t bytes, Charge& charge) override;
  void retain() override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() override;

  // The loop's
  Buffer buffer;
  size_t size = 0;  // bytes in the buffer
  RequestParser parser;
  Route route = Route::none;      // of the metrics
  std::string model;              // that was named; empty: unknown, or answered by another process
  std::function<void()> drained;  // called on the loop when the client has taken what was written

  void open(std::shared_ptr<Share> share);  // of the address that the memory counts for
  // Gives the buffer another capacity. `may_be_refused`: else it is charged, whatever others have.
  Refusal resize(size_t capacity, bool may_be_refused);

  void dispatch(const Client& client, bool tells_end);
  bool is_busy() const { return flags_.load(std::memory_order_acquire) & kBusy; }

  // Whether the answer is complete, and nobody will tell. If not, Loop::notify() is called once.
  bool claim();
  void end_claim();  // it was told

  // Whether it is complete and was not claimed.
  bool is_complete() const { return flags_.load(std::memory_order_acquire) == 0; }

  void flush();  // the client can take more
  void handle() override;
  void disconnect();  // the client has gone
  void abort();       // ends a stream that is not complete, by closing the connection
  bool is_gone() const;
  bool is_blocked() const { return is_blocked_.load(std::memory_order_relaxed); }
  Connection* connection() const { return client_.connection; }
  bool keeps_alive() const { return client_.keeps_alive; }
  int64_t answered_at() const { return answered_at_; }  // when it is complete

  bool is_sole_reference() const { return references_.load(std::memory_order_acquire) == 1; }
  // Before it is answered: the body without its encoding.
  void replace_body(std::shared_ptr<const Buffer> content, size_t size, Charge&& charge);

  void reset();  // what the next request does not need; only with the sole reference
  HttpExchange* next_free = nullptr;

 private:
  ~HttpExchange() = default;
  enum : uint32_t { kBusy = 1, kTellEnd = 2 };
  enum class Stage { open, streaming, complete };
  enum class Sent { all, blocked, failed };

  using Lock = std::unique_lock<SpinningMutex>;

  void write_head(const Response& response, int64_t length);
  bool is_for_loop(uint64_t length) const;
  bool send_left();  // sends the answer if it was left to the loop
  void charge_answer(Response& response);
  Sent send_pending();
  void advance(size_t sent);
  void settle(Lock& lock);
  void drop_output();
  void call_cancel();
  void abandon();
  bool is_of_model() const;
  bool is_refused() const;
  void finish();
  void report(Loop& loop);  // to the metrics and the access log

  std::atomic<int> references_{1};
  std::atomic<uint32_t> flags_{0};
  std::atomic<size_t> unsent_{0};
  std::atomic<bool> is_blocked_{false};
  Request request_;
  std::shared_ptr<const Buffer> content_;  // of a body that was compressed
  Client client_;
  int64_t received_at_ = 0, answered_at_ = 0;
  uint64_t number_ = 0;  // of RecentRequests
  std::shared_ptr<Share> share_;
  Charge memory_, content_charge_;  // of the buffer; of `content_`
  std::atomic<Refusal> refusal_{Refusal::none};

  mutable SpinningMutex mutex_;  // of the following
  Stage stage_ = Stage::open;
  bool is_gone_ = false, is_finished_ = false, has_chunks_ = false, has_body_ = true;
  bool is_left_ = false;  // to the loop, which was notified
  int64_t missing_ = -1;  // bytes of the body that were announced and are to be written
  int status_ = 0;
  std::string head_, sending_, pending_;  // of a response; of a stream
  size_t sent_ = 0;                       // bytes of `sending_`
  Response response_;
  std::vector<iovec> parts_;  // come before the stream
  size_t first_part_ = 0;
  uint64_t sent_bytes_ = 0;
  Charge unsent_charge_;  // of the answer

  std::recursive_mutex cancel_mutex_;  // of the following; held during the call
  std::function<void()> cancel_;
  bool is_cancelled_ = false;
};

}  // namespace pytriton::http
