// A call of /predict that is answered when all its groups are.
#include "call.h"
#include "results.h"

namespace pytriton::http {

namespace {

class Prediction final : public Call {
 public:
  Prediction(Exchange& exchange, std::shared_ptr<const Signature> signature, AnswerOptions options, const Rows& rows,
             size_t groups)
      : Call(exchange, std::move(signature), std::move(options), groups),
        is_batch_(rows.is_batch),
        results_(rows.each.size()),
        pending_(groups) {}

  void respond(const Group& group, const ModelResponse& response, bool final) override {
    if (!results_[group.rows[0]].empty()) return;
    if (!response) {
      if (final) fail(group, Failure(Code::internal, "the model sent no response"));
      return;
    }
    auto results = make_results(signature(), response, group.rows.size());
    for (size_t index = 0; index < results.size(); ++index) results_[group.rows[index]] = std::move(results[index]);
    if (!--pending_ && claim()) send();
  }

  void fail(const Group& group, const Failure& failure) override {
    send(shown(is_batch_ ? error_of_instances(failure, group.rows) : error_of(failure), request_id()));
  }

  void expire(const Deadlines& which) override { send(too_late(which.length_ns())); }

 private:
  void send() {
    Response answer;
    answer.headers = "X-Request-ID: " + request_id() + "\r\n";
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

  void send(const PredictError& error) {
    if (!claim()) return;
    exchange().send(make_error(error, request_id()));
    cancel();
  }

  const bool is_batch_;
  std::vector<std::string> results_;
  std::atomic<size_t> pending_;
};

}  // namespace

std::shared_ptr<Call> make_prediction(Exchange& exchange, std::shared_ptr<const Signature> signature,
                                      AnswerOptions options, const Rows& rows, size_t groups) {
  return std::make_shared<Prediction>(exchange, std::move(signature), std::move(options), rows, groups);
}

}  // namespace pytriton::http
