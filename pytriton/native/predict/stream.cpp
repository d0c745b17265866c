// A call of /predict to a decoupled model, which is answered response by response.
#include "../edge/clock.h"
#include "../edge/route_options.h"
#include "call.h"
#include "results.h"

namespace pytriton::http {

namespace {

class Stream final : public Call {
 public:
  Stream(Exchange& exchange, std::shared_ptr<const Signature> signature, AnswerOptions options)
      : Call(exchange, std::move(signature), std::move(options), 1) {}
  ~Stream() override {
    if (has_events()) heartbeats().end(heartbeat_);
  }

  void respond(const Group& /*group*/, const ModelResponse& response, bool final) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (is_complete_) return;
    begin_deadlines();
    if (response) {
      for (const std::string& result : make_results(signature(), response, 1)) {
        write(has_events() ? "data: " + result + "\n\n" : result + "\n");
        if (exchange().unsent() > kMostUnsent) {
          fail_locked(error_of(Failure(Code::cancelled, "the stream was ended, as its values are not read")));
          return;
        }
      }
    }
    if (final) complete(has_events() ? "event: end\ndata: {}\n\n" : "");
  }

  void fail(const Group& /*group*/, const Failure& failure) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    fail_locked(shown(error_of(failure), request_id()));
  }

  void expire(const Deadlines& which) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (is_complete_) return;
    if (&which != &heartbeats()) return fail_locked(too_late(which.length_ns()));
    write(": heartbeat\n\n");
    heartbeats().begin(heartbeat_, weak_from_this());
  }

  void begin_deadlines() {
    begin_deadline();
    if (has_events()) heartbeats().begin(heartbeat_, weak_from_this());
  }

 private:
  static Deadlines& heartbeats() {
    static auto* const heartbeats =
        new Deadlines(route_options().predict.heartbeat_ms * kMillisecond_ns);  // its thread never ends
    return *heartbeats;
  }

  void begin_answer() {
    Response head;
    head.content_type = has_events() ? "text/event-stream; charset=utf-8" : "application/x-ndjson";
    // nginx would collect the answers.
    head.headers = "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\nX-Request-ID: " + request_id() + "\r\n";
    exchange().begin(std::move(head));
  }

  // A heartbeat or a first response may have begun the answer already.
  bool is_over() override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    return is_complete_ || (!is_begun_ && Call::is_over());
  }

  // False if the answer is the application's.
  bool write(std::string&& text) {
    if (!is_begun_) {
      is_complete_ = !claim();
      if (is_complete_) return false;
      begin_answer();
      is_begun_ = true;
    }
    if (!text.empty()) exchange().write(std::move(text));
    return true;
  }

  void fail_locked(const PredictError& error) {
    if (is_complete_) return;
    if (!is_begun_) {
      is_complete_ = true;
      if (claim()) exchange().send(make_error(error, request_id()));
    } else {
      complete(has_events() ? "event: error\ndata: " + error.json() + "\n\n" : error.json() + "\n");
    }
    cancel();
  }

  void complete(std::string&& last) {
    if (write(std::move(last))) exchange().end();
    is_complete_ = true;
  }

  Deadline heartbeat_;
  std::mutex stream_mutex_;  // of the following, and of what is written
  bool is_begun_ = false, is_complete_ = false;
};

}  // namespace

std::shared_ptr<Call> make_stream(Exchange& exchange, std::shared_ptr<const Signature> signature,
                                  AnswerOptions options) {
  auto stream = std::make_shared<Stream>(exchange, std::move(signature), std::move(options));
  stream->begin_deadlines();
  return stream;
}

}  // namespace pytriton::http
