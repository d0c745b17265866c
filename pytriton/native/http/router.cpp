#include "router.h"

#include "../json.h"
#include "background.h"
#include "forward.h"
#include "front.h"
#include "inflate.h"
#include "routes.h"
#include "server_functions.h"

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

bool is_below(std::string_view path, std::string_view folder) {
  return take_prefix(path, folder) && (path.empty() || path.front() == '/');
}

// Clients that merely name what they can read, such as "gzip, deflate", get their answers sooner as they are.
bool wants_compressed_answer(const Request& request) {
  const std::string_view encoding = request.header("accept-encoding");
  return encoding == "gzip" || encoding == "deflate";
}

bool is_encoded(const Request& request) {
  const std::string_view encoding = request.header("content-encoding");
  return !encoding.empty() && !equals_ignoring_case(encoding, "identity");
}

// Whether a body is in an encoding that we take off: the server would do so without a limit.
bool is_compressed(const Request& request) {
  const std::string_view encoding = request.header("content-encoding");
  return equals_ignoring_case(encoding, "gzip") || equals_ignoring_case(encoding, "deflate");
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  for (const char digit : text) number = number * 10 + (digit - '0');
  return number;
}

// A model, and what is asked of it, in /{model}[/versions/{version}]/{action}; no model if it is something else.
Target take_target(std::string_view& path) {
  const std::string_view name = take_segment(path);
  if (name.find('%') != std::string_view::npos) return {};
  Target target{std::string(name), -1};
  if (take_prefix(path, "versions/")) {
    const std::string_view version = take_segment(path);
    if (!is_number(version)) return {};
    target.version = number_of(version);
  }
  return target;
}

bool answer_v2(TRITONSERVER_Server* server, HttpExchange& exchange, Entrance entrance) {
  const Request& request = exchange.request();
  std::string_view path = request.path;
  if (request.method != "POST" || !take_prefix(path, "/v2/models/") || is_encoded(request) ||
      wants_compressed_answer(request))
    return false;
  const Target target = take_target(path);
  if (target.model.empty()) return false;
  if (entrance != Entrance::control) exchange.model = target.model;  // else the REST front counts the request
  if (path == "infer") {
    exchange.route = Route::infer;
    return infer_v2(server, exchange, target);
  }
  if (path == "generate" || path == "generate_stream") {
    const bool is_stream = path == "generate_stream";
    exchange.route = is_stream ? Route::generate_stream : Route::generate;
    return generate(server, exchange, target, is_stream);
  }
  return false;
}

void leave_to_application(Loop& loop, HttpExchange& exchange) {
  if (SharedCounters* const counters = loop.front().counters(); counters && exchange.route == Route::predict)
    counters->end();
  exchange.route = Route::application;
  exchange.model.clear();
  forward(loop, loop.application(), exchange, true);
}

bool answer_predict(Loop& loop, HttpExchange& exchange) {
  Front& front = loop.front();
  const Request& request = exchange.request();
  std::string_view path = request.path;
  if (!front.config().predict || request.method != "POST" || !take_prefix(path, "/predict/")) return false;
  if (!request.header("content-encoding").empty() || front.access().refusal(request, "inference") || path.empty() ||
      path.back() == '/')
    return false;
  const std::string_view name = take_segment(path);
  if (name.empty() || name.find('%') != std::string_view::npos || (!path.empty() && !is_number(path))) return false;
  exchange.route = Route::predict;
  exchange.model = name;
  if (front.counters()) front.counters()->begin();
  return predict(
      front.server(), exchange, {std::string(name), path.empty() ? -1 : number_of(path)}, [&loop, &exchange] {
        loop.post(
            [&loop, &exchange, reference = ExchangeReference(exchange)] { leave_to_application(loop, exchange); });
      });
}

void refuse(HttpExchange& exchange, const Restriction& restriction) {
  exchange.send(error_response(403, "This API is restricted, expecting header '" + restriction.header + "'"));
}

std::string server_metrics(TRITONSERVER_Server* server) {
  TRITONSERVER_Metrics* metrics = nullptr;
  if (!ignore(TRITONSERVER_ServerMetrics(server, &metrics))) return {};  // they are off
  const char* base = nullptr;
  size_t size = 0;
  std::string page;
  if (ignore(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size)))
    page.assign(base, size);
  ignore(TRITONSERVER_MetricsDelete(metrics));
  return page;
}

void send_page(HttpExchange& exchange, std::string&& text, Route route) {
  exchange.route = route;
  Response page;
  page.content_type = "text/plain; version=0.0.4; charset=utf-8";
  page.body = std::move(text);
  exchange.send(std::move(page));
}

// As the server says it of itself while it loads the models of its start.
void say_not_ready(HttpExchange& exchange) {
  exchange.route = Route::own;
  Response response;
  response.status = 400;
  exchange.send(std::move(response));
}

void answer_or_forward(Loop& loop, HttpExchange& exchange, Entrance entrance) {
  const Request& request = exchange.request();
  if (answer_v2(loop.front().server(), exchange, entrance)) return;
  exchange.model.clear();
  if (!loop.front().has_models() && request.path == "/v2/health/ready" && request.method == "GET")
    return say_not_ready(exchange);
  exchange.route = Route::triton;
  forward(loop, loop.upstream(), exchange, false);
}

Response done() {
  Response response;
  response.body = "{}";
  return response;
}

void route_control(Loop& loop, HttpExchange& exchange) {
  exchange.route = Route::control;
  const Request& request = exchange.request();
  if (request.path == "/metrics" && request.method == "GET") {
    send_page(exchange, loop.front().metrics_page(), Route::control);
  } else if (request.path == "/drain" && request.method == "POST") {
    loop.front().drain([reference = std::make_shared<ExchangeReference>(exchange)] { (*reference)->send(done()); });
  } else if (request.path == "/ready" && request.method == "POST") {
    loop.front().set_has_models();
    exchange.send(done());
  } else {
    answer_or_forward(loop, exchange, Entrance::control);  // the REST front's requests
  }
}

// On another thread, as it may take long.
void inflate_and_answer(Loop& loop, HttpExchange& exchange) {
  run_in_background([&loop, reference = ExchangeReference(exchange), &exchange] {
    const Config& config = loop.front().config();
    const auto content = std::make_shared<Buffer>();
    size_t size = 0;
    const Inflated result =
        inflate(exchange.request().body, config.limits.max_body_bytes, config.max_buffered_bytes, *content, size);
    loop.post([&loop, &exchange, reference, content, size, result] {
      if (result == Inflated::too_long) {
        exchange.send(error_response(413, "the request's body is too large when it is decompressed"));
      } else if (result == Inflated::has_more) {
        exchange.send(error_response(400, "bytes follow the compressed body"));
      } else {
        if (result == Inflated::complete) exchange.replace_body(content, size);
        answer_or_forward(loop, exchange, Entrance::server);  // the server says what is wrong with one that is broken
      }
    });
  });
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

void route(Loop& loop, HttpExchange& exchange, Entrance entrance) {
  if (entrance == Entrance::control) return route_control(loop, exchange);
  Front& front = loop.front();
  const Request& request = exchange.request();
  const Config& config = front.config();
  if (config.max_requests && front.requests_in_flight() > config.max_requests)
    return exchange.send(error_response(503, "the server has too many requests in flight"));
  if (entrance == Entrance::server && is_below(request.path, "/v2")) {
    const Restriction* const restriction = front.access().refusal(request, endpoint_group(request.path));
    if (restriction) return refuse(exchange, *restriction);
    return is_compressed(request) ? inflate_and_answer(loop, exchange) : answer_or_forward(loop, exchange, entrance);
  }
  if (entrance == Entrance::server && config.metrics && request.path == "/metrics" && request.method == "GET")
    return send_page(exchange, server_metrics(front.server()) + front.metrics_page(), Route::own);
  if (config.application.empty() || (entrance == Entrance::server && !config.application_everywhere)) {
    exchange.route = Route::none;
    return exchange.send(error_response(404, "there is no such path"));
  }
  if (!answer_predict(loop, exchange)) leave_to_application(loop, exchange);
}

}  // namespace pytriton::http
