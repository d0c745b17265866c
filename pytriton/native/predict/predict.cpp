// POST /predict/{model}[/{version}]: JSON with the values of a function's parameters, or of declared tensors, becomes
// JSON with its results.
//
// What is not certain is left to the application (pytriton/rest): forms, files, values that may be wrong. So the rules
// for mistakes, and their messages, are in one place.
#include "predict.h"

#include <map>
#include <mutex>

#include "../edge/background.h"
#include "../edge/route_options.h"
#include "../kserve/forwarded_headers.h"
#include "../kserve/json_elements.h"
#include "answer_options.h"
#include "call.h"

namespace pytriton::http {

namespace {

// The signatures of models, as long as their configurations are the same.
class Signatures {
 public:
  std::shared_ptr<const Signature> find(const Target& target, const std::shared_ptr<const Model>& model) {
    const std::pair key(target.model, target.version);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(key);
    if (found != known_.end() && found->second.model == model) return found->second.signature;
    for (auto each = known_.begin(); each != known_.end();)  // models that nobody else knows any more
      each = each->second.model.use_count() <= (each->second.signature ? 2 : 1) ? known_.erase(each) : std::next(each);
    Known& known = known_[key];
    known = {model, make_signature(model)};
    return known.signature;
  }

 private:
  struct Known {
    std::shared_ptr<const Model> model;
    std::shared_ptr<const Signature> signature;  // nullptr: only the application knows them
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, int64_t>, Known> known_;
};

// A request whose body has not been read.
struct Unread {
  std::shared_ptr<const Signature> signature;
  int64_t version = -1;
  AnswerOptions options;
};

bool read_and_send(TRITONSERVER_Server* server, Exchange& exchange, Unread request,
                   const std::function<void()>& fall_back) {
  const bool is_stream = request.signature->model->decoupled;
  auto rows = read_rows(*request.signature, exchange.request().body);
  if (!rows || (is_stream && rows->is_batch)) return false;
  const auto groups = group_rows(*request.signature, *rows);
  if (!groups) return false;
  const auto call = is_stream ? make_stream(exchange, std::move(request.signature), std::move(request.options))
                              : make_prediction(exchange, std::move(request.signature), std::move(request.options),
                                                *rows, groups->size());
  call->send(server, request.version, *rows, *groups, fall_back);
  return true;
}

// Whether the function is done. Of models that are not there, or not ready, the application says which there are.
template <typename Function>
bool is_done(const Function& function) {
  try {
    return function();
  } catch (const Failure&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool begin(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()>&& fall_back) {
  static Signatures signatures;
  const Request& http = exchange.request();
  const PredictOptions& options = route_options().predict;
  const auto model = models_of(server).find(target.model, target.version);
  Unread request{signatures.find(target, model), target.version, {}};
  if (!request.signature) return false;
  auto answer = read_answer_options(http, options, model->decoupled);
  if (!answer) return false;
  if (const size_t count = Call::count(); count >= options.max_requests) {
    exchange.send(make_error(too_many_requests(count), answer->id));
    return true;
  }
  request.options = std::move(*answer);
  if (http.body.size() <= kLargeJson) return read_and_send(server, exchange, std::move(request), fall_back);
  run_in_background(http.peer, http.body.size(),
                    [=, exchange = ExchangeReference(exchange), fall_back = std::move(fall_back)] {
                      Charge charge;
                      if (!exchange->reserve(reading_bytes(exchange->request().body), charge)) {
                        PredictError error = too_many_requests(Call::count());
                        error.message = "there is no memory to read the request; try again later";
                        return exchange->send(make_error(error, request.options.id));
                      }
                      if (!is_done([&] { return read_and_send(server, *exchange, request, fall_back); })) fall_back();
                    });
  return true;
}

}  // namespace

bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()> fall_back) {
  const Request& http = exchange.request();
  if (http.method != "POST" || is_left_to_server()) return false;
  if (!route_options().header_forward_pattern.empty() && !http.header("traceparent").empty()) return false;
  return is_done([&] { return begin(server, exchange, target, std::move(fall_back)); });
}

}  // namespace pytriton::http
