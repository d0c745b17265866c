// POST /predict/{model}[/{version}]: JSON with the values of a function's parameters, or of declared tensors, becomes
// JSON with its results.
//
// What is not certain is left to the application (pytriton/rest): forms, files, values that may be wrong. So the rules
// for mistakes, and their messages, are in one place.
#include <map>
#include <mutex>

#include "background.h"
#include "forwarding.h"
#include "predict_call.h"
#include "predict_wish.h"

namespace pytriton::http {

namespace {

// The fields of models, as long as their configurations are the same.
class FieldsCache {
 public:
  std::shared_ptr<const Fields> find(const Target& target, const std::shared_ptr<const Model>& model) {
    const std::pair key(target.model, target.version);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(key);
    if (found != known_.end() && found->second.model == model) return found->second.fields;
    for (auto each = known_.begin(); each != known_.end();)  // models that nobody else knows any more
      each = each->second.model.use_count() <= (each->second.fields ? 2 : 1) ? known_.erase(each) : std::next(each);
    Known& known = known_[key];
    known = {model, make_fields(model)};
    return known.fields;
  }

 private:
  struct Known {
    std::shared_ptr<const Model> model;
    std::shared_ptr<const Fields> fields;  // nullptr: only the application knows them
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, int64_t>, Known> known_;
};

// A request whose body has not been read.
struct Unread {
  std::shared_ptr<const Fields> fields;
  int64_t version = -1;
  Wish wish;
};

bool read_and_send(TRITONSERVER_Server* server, Exchange& exchange, Unread unread, const std::function<void()>& leave) {
  const bool is_stream = unread.fields->model->decoupled;
  auto question = read_question(*unread.fields, exchange.request().body);
  if (!question || (is_stream && question->is_batch)) return false;
  const auto groups = group_rows(*unread.fields, *question);
  if (!groups) return false;
  const auto call = is_stream ? make_stream(exchange, std::move(unread.fields), std::move(unread.wish))
                              : make_prediction(exchange, std::move(unread.fields), std::move(unread.wish), *question,
                                                groups->size());
  call->send(server, unread.version, *question, *groups, leave);
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

bool begin(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()>&& leave) {
  static FieldsCache cache;
  const Request& http = exchange.request();
  const PredictOptions& options = route_options().predict;
  const auto model = models_of(server).find(target.model, target.version);
  Unread unread{cache.find(target, model), target.version, {}};
  if (!unread.fields) return false;
  auto wish = read_wish(http, options, model->decoupled);
  if (!wish) return false;
  if (const size_t count = Call::count(); count >= options.max_requests) {
    exchange.send(make_error(too_many_requests(count), wish->id));
    return true;
  }
  unread.wish = std::move(*wish);
  if (http.body.size() <= kLargeJson) return read_and_send(server, exchange, std::move(unread), leave);
  run_in_background([=, exchange = ExchangeReference(exchange), leave = std::move(leave)] {
    if (!is_done([&] { return read_and_send(server, *exchange, unread, leave); })) leave();
  });
  return true;
}

}  // namespace

bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target, std::function<void()> leave) {
  const Request& http = exchange.request();
  if (http.method != "POST" || is_left_to_server(http)) return false;
  if (!route_options().header_forward_pattern.empty() && !http.header("traceparent").empty()) return false;
  return is_done([&] { return begin(server, exchange, target, std::move(leave)); });
}

}  // namespace pytriton::http
