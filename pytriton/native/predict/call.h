// Requests of /predict in flight, and their answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "../edge/deadlines.h"
#include "../kserve/inference.h"
#include "answer_options.h"
#include "errors.h"
#include "rows.h"
#include "signature.h"

namespace pytriton::http {

// One request of a client, which is one or more requests to the model. Lives until the last of them ends.
class Call : public Expiring, public std::enable_shared_from_this<Call> {
 public:
  Call(Exchange& exchange, std::shared_ptr<const Signature> signature, AnswerOptions options, size_t groups);
  virtual ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Sends the groups of the rows. Calls `fall_back`, with nothing in flight that answers, if the server refuses one:
  // the application says why.
  void send(TRITONSERVER_Server* server, int64_t version, Rows& rows, const std::vector<Group>& groups,
            std::function<void()> fall_back);

  static size_t count();  // of all calls

  // A response to the request of a group; one at a time for each group.
  virtual void respond(const Group& group, const ModelResponse& response, bool final) = 0;
  virtual void fail(const Group& group, const Failure& failure) = 0;

 protected:
  const Signature& signature() const { return *signature_; }
  const std::string& request_id() const { return options_.id; }
  bool has_events() const { return options_.has_events; }
  Exchange& exchange() const { return *exchange_; }

  PredictError too_late(int64_t timeout_ns) const;

  void begin_deadline();                                // for the next response, or all
  void cancel();                                        // all requests
  bool claim() { return !is_claimed_.exchange(true); }  // whether nobody else answers
  virtual bool is_over() { return is_claimed_; }        // whether no request needs to be sent any more

 private:
  class Part;
  void watch(size_t part, std::function<void()> cancel);
  void refuse(const Group& group, const Failure& failure);
  void fall_back();

  ExchangeReference exchange_;
  const std::shared_ptr<const Signature> signature_;
  const AnswerOptions options_;
  std::function<void()> fall_back_;
  Deadline deadline_;
  std::atomic<bool> is_claimed_{false};
  bool is_watching_ = false;  // the exchange would call cancel()
  std::mutex mutex_;          // of the following; never held while the exchange is called
  bool is_cancelled_ = false;
  std::vector<std::function<void()>> cancels_;
};

// A call that is answered when all groups are.
std::shared_ptr<Call> make_prediction(Exchange& exchange, std::shared_ptr<const Signature> signature,
                                      AnswerOptions options, const Rows& rows, size_t groups);

// A call of a decoupled model, which is answered response by response.
std::shared_ptr<Call> make_stream(Exchange& exchange, std::shared_ptr<const Signature> signature,
                                  AnswerOptions options);

}  // namespace pytriton::http
