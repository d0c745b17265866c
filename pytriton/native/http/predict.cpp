// POST /predict/{model}[/{version}]: JSON with the values of a function's parameters, or of declared tensors, becomes
// JSON with its results.
//
// What is not certain is left to the application (pytriton/rest): forms, files, values that may be wrong. So the rules
// for mistakes, and their messages, are in one place.
#include <map>
#include <mutex>

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

bool has_trace(const Request& request) { return !request.header("traceparent").empty(); }

bool send(TRITONSERVER_Server* server, Exchange& exchange, const Target& target) {
  static FieldsCache cache;
  const Request& http = exchange.request();
  const PredictOptions& options = route_options().predict;
  const auto model = models_of(server).find(target.model, target.version);
  const auto fields = cache.find(target, model);
  if (!fields) return false;
  auto wish = read_wish(http, options, model->decoupled);
  if (!wish) return false;
  if (Call::count() >= options.max_requests) {
    exchange.send(make_error(too_many_requests(Call::count()), wish->id));
    return true;
  }
  auto question = read_question(*fields, http.body);
  if (!question || (model->decoupled && question->is_batch)) return false;
  const auto groups = group_rows(*fields, *question);
  if (!groups) return false;
  const auto call = model->decoupled
                        ? make_stream(exchange, fields, std::move(*wish))
                        : make_prediction(exchange, fields, std::move(*wish), *question, groups->size());
  return call->send(server, target.version, *question, *groups);
}

}  // namespace

bool predict(TRITONSERVER_Server* server, Exchange& exchange, const Target& target) {
  const Request& http = exchange.request();
  if (http.method != "POST" || is_left_to_server(http)) return false;
  if (!route_options().header_forward_pattern.empty() && has_trace(http)) return false;
  try {
    return send(server, exchange, target);
  } catch (const Failure&) {
    return false;  // there is no such model, or it is not ready: the application says which models there are
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace pytriton::http
