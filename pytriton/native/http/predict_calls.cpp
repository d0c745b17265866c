// The two kinds of calls of /predict: those that are answered at once, and streams.
#include "clock.h"
#include "forwarding.h"
#include "predict_answer.h"
#include "predict_call.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostUnsent = 256 << 20;  // bytes of a stream whose client does not read

class Prediction final : public Call {
 public:
  Prediction(Exchange& exchange, std::shared_ptr<const Fields> fields, Wish wish, const Question& question,
             size_t groups)
      : Call(exchange, std::move(fields), std::move(wish), groups),
        is_batch_(question.is_batch),
        results_(question.rows.size()),
        pending_(groups) {}

  void respond(const Group& group, const ModelResponse& response, bool final) override {
    if (!results_[group.rows[0]].empty()) return;
    if (!response) {
      if (final) fail(group, Failure(Code::internal, "the model sent no response"));
      return;
    }
    auto results = make_results(fields(), response, group.rows.size());
    for (size_t index = 0; index < results.size(); ++index) results_[group.rows[index]] = std::move(results[index]);
    if (--pending_ || !claim()) return;
    if (wish().form == AnswerForm::json) return send_json();
    begin_stream();
    for (const std::string& result : results_) exchange().write(item(result));
    if (wish().form == AnswerForm::events) exchange().write("event: end\ndata: {}\n\n");
    exchange().end();
  }

  void fail(const Group& group, const Failure& failure) override {
    if (!claim()) return;
    exchange().send(make_error(is_batch_ ? error_of_instances(failure, group.rows) : error_of(failure), wish().id));
    cancel();
  }

  void expire(const Deadlines& which) override {
    if (!claim()) return;
    exchange().send(make_error(too_late(fields().model->name, which.length_ns()), wish().id));
    cancel();
  }

 private:
  std::string item(const std::string& result) const {
    return wish().form == AnswerForm::events ? "data: " + result + "\n\n" : result + "\n";
  }

  void send_json() {
    Response answer;
    answer.headers = "X-Request-ID: " + wish().id + "\r\n";
    if (is_batch_) {
      answer.body = "{\"predictions\":[";
      for (const std::string& result : results_) answer.body.append(result).append(1, ',');
      answer.body.back() = ']';
      answer.body += '}';
    } else {
      answer.body = std::move(results_[0]);
    }
    exchange().send(std::move(answer));
  }

  const bool is_batch_;
  std::vector<std::string> results_;
  std::atomic<size_t> pending_;
};

class Stream final : public Call {
 public:
  Stream(Exchange& exchange, std::shared_ptr<const Fields> fields, Wish wish)
      : Call(exchange, std::move(fields), std::move(wish), 1) {}
  ~Stream() override {
    if (is_event_stream()) heartbeats().end(heartbeat_);
  }

  void respond(const Group& /*group*/, const ModelResponse& response, bool final) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (is_complete_) return;
    begin_deadlines();
    if (response) {
      for (const std::string& result : make_results(fields(), response, 1)) {
        write(is_event_stream() ? "data: " + result + "\n\n" : result + "\n");
        if (exchange().unsent() > kMostUnsent) {
          fail_locked(error_of(Failure(Code::cancelled, "the stream was ended, as its values are not read")));
          return;
        }
      }
    }
    if (final) complete(is_event_stream() ? "event: end\ndata: {}\n\n" : "");
  }

  void fail(const Group& /*group*/, const Failure& failure) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    fail_locked(error_of(failure));
  }

  void expire(const Deadlines& which) override {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (is_complete_) return;
    if (&which != &heartbeats()) return fail_locked(too_late(fields().model->name, which.length_ns()));
    write(": heartbeat\n\n");
    heartbeats().begin(heartbeat_, weak_from_this());
  }

  void begin_deadlines() {
    begin_deadline();
    if (is_event_stream()) heartbeats().begin(heartbeat_, weak_from_this());
  }

 private:
  static Deadlines& heartbeats() {
    static auto* const heartbeats =
        new Deadlines(route_options().predict.heartbeat_ms * kMillisecond_ns);  // its thread never ends
    return *heartbeats;
  }

  bool is_event_stream() const { return wish().form == AnswerForm::events; }

  // False if the answer is the application's.
  bool write(std::string&& text) {
    if (!is_begun_) {
      is_complete_ = !claim();
      if (is_complete_) return false;
      begin_stream();
      is_begun_ = true;
    }
    if (!text.empty()) exchange().write(std::move(text));
    return true;
  }

  void fail_locked(const PredictError& error) {
    if (is_complete_) return;
    if (!is_begun_) {
      is_complete_ = true;
      if (claim()) exchange().send(make_error(error, wish().id));
    } else {
      complete(is_event_stream() ? "event: error\ndata: " + error.json() + "\n\n" : error.json() + "\n");
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

std::shared_ptr<Call> make_prediction(Exchange& exchange, std::shared_ptr<const Fields> fields, Wish wish,
                                      const Question& question, size_t groups) {
  return std::make_shared<Prediction>(exchange, std::move(fields), std::move(wish), question, groups);
}

std::shared_ptr<Call> make_stream(Exchange& exchange, std::shared_ptr<const Fields> fields, Wish wish) {
  auto stream = std::make_shared<Stream>(exchange, std::move(fields), std::move(wish));
  stream->begin_deadlines();
  return stream;
}

}  // namespace pytriton::http
