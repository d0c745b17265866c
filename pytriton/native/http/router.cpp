#include "router.h"

#include "../json.h"
#include "front.h"
#include "routes.h"

namespace pytriton::http {

namespace {

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The text before the next slash, which is removed with it.
std::string_view take_segment(std::string_view& path) {
  const size_t slash = path.find('/');
  const std::string_view segment = path.substr(0, slash);
  path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  return segment;
}

bool is_number(std::string_view text) {
  constexpr size_t kMostDigits = 18;
  if (text.empty() || text.size() > kMostDigits) return false;
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  for (const char digit : text) number = number * 10 + (digit - '0');
  return number;
}

bool route_to_model(TRITONSERVER_Server* server, HttpExchange& exchange, std::string_view path) {
  const std::string_view name = take_segment(path);
  if (name.empty() || name.find('%') != std::string_view::npos) return false;
  Target target{std::string(name), -1};
  if (take_prefix(path, "versions/")) {
    const std::string_view version = take_segment(path);
    if (!is_number(version)) return false;
    target.version = number_of(version);
  }
  if (path == "infer") {
    exchange.route = Route::infer;
    return infer_v2(server, exchange, target);
  }
  if (path == "generate") {
    exchange.route = Route::generate;
    return generate(server, exchange, target, false);
  }
  if (path == "generate_stream") {
    exchange.route = Route::generate_stream;
    return generate(server, exchange, target, true);
  }
  return false;
}

bool route_to_predict(TRITONSERVER_Server* server, HttpExchange& exchange, std::string_view path) {
  const std::string_view name = take_segment(path);
  if (name.empty() || name.find('%') != std::string_view::npos) return false;
  Target target{std::string(name), -1};
  if (!path.empty()) {
    if (!is_number(path)) return false;
    target.version = number_of(path);
  }
  exchange.route = Route::predict;
  return predict(server, exchange, target);
}

void route_control(Loop& loop, HttpExchange& exchange) {
  exchange.route = Route::own;
  const Request& request = exchange.request();
  if (request.path == "/metrics" && request.method == "GET") {
    Response page;
    page.content_type = "text/plain; charset=utf-8";
    page.body = loop.front().metrics_page();
    exchange.send(std::move(page));
  } else if (request.path == "/drain" && request.method == "POST") {
    loop.front().drain([reference = std::make_shared<ExchangeReference>(exchange)] {
      Response done;
      done.body = "{}";
      (*reference)->send(std::move(done));
    });
  } else {
    exchange.send(error_response(404, "there is no such path"));
  }
}

}  // namespace

Response error_response(int status, std::string_view message) {
  Response response;
  response.status = status;
  response.body = "{\"error\":";
  append_json(response.body, message);
  response.body += '}';
  return response;
}

void route(Loop& loop, HttpExchange& exchange, bool is_control) {
  if (is_control) return route_control(loop, exchange);
  Front& front = loop.front();
  std::string_view path = exchange.request().path;
  if (take_prefix(path, "/v2/models/")) {
    if (route_to_model(front.server(), exchange, path)) return;
  } else if (front.config().predict && take_prefix(path, "/predict/")) {
    if (route_to_predict(front.server(), exchange, path)) return;
  }
  exchange.send(error_response(404, "there is no such path"));
}

}  // namespace pytriton::http
