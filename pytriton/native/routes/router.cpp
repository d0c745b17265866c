#include "../edge/router.h"

#include <algorithm>
#include <charconv>

#include "../edge/answer_coding.h"
#include "../edge/background.h"
#include "../edge/connection.h"
#include "../edge/edge.h"
#include "../edge/error_response.h"
#include "../edge/forward.h"
#include "../edge/inflate.h"
#include "../edge/route_options.h"
#include "../edge/server_functions.h"
#include "../frames/json.h"
#include "../kserve/control_body.h"
#include "../kserve/dtypes.h"
#include "../kserve/forwarded_headers.h"
#include "../kserve/infer.h"
#include "../kserve/infer_answer.h"
#include "../kserve/json_elements.h"
#include "../kserve/metadata.h"
#include "../kserve/models.h"
#include "../kserve/shared_memory.h"
#include "../kserve/v2_path.h"
#include "../predict/predict.h"
#include "cloud.h"

namespace pytriton::http {

namespace {

constexpr const char* kNotFound = "Not Found";

bool is_below(std::string_view path, std::string_view folder) {
  return take_prefix(path, folder) && (path.empty() || path.front() == '/');
}

// How the body of a request is compressed, which is taken off here: the server would do so without a limit.
enum class Encoding { identity, compressed, unknown };
Encoding encoding_of(const Request& request) {
  Encoding encoding = Encoding::identity;
  for (const Header& header : request.headers) {
    if (!equals_ignoring_case(header.name, "content-encoding") || header.value.empty() ||
        equals_ignoring_case(header.value, "identity"))
      continue;
    const bool is_known = equals_ignoring_case(header.value, "gzip") || equals_ignoring_case(header.value, "deflate");
    if (!is_known || encoding != Encoding::identity) return Encoding::unknown;
    encoding = Encoding::compressed;
  }
  return encoding;
}

// Has an inference answered by the server's own endpoint, which knows it by its path.
void leave_to_server(Loop& loop, HttpExchange& exchange) {
  const Request& request = exchange.request();
  exchange.model.clear();
  exchange.route = Route::triton;
  const auto target = server_target(asked_path(loop.edge().config(), exchange.connection()->entrance(), request));
  if (!target) return exchange.send(error_response(404, kNotFound));
  forward_to_server(loop, exchange, *target, headers_for_server(request));
}

void answer_inference(Loop& loop, HttpExchange& exchange, const V2Path& path, Entrance entrance) {
  if (entrance != Entrance::control) exchange.model = path.target.model;  // else the app counts the request
  TRITONSERVER_Server* const server = loop.edge().server();
  const Fallback fall_back = [&loop, &exchange] {
    if (loop.is_current()) return leave_to_server(loop, exchange);
    loop.post([&loop, &exchange, reference = ExchangeReference(exchange)] { leave_to_server(loop, exchange); });
  };
  if (path.action == Action::infer) {
    exchange.route = Route::infer;
    return infer_v2(server, exchange, path.target, fall_back);
  }
  const bool is_stream = path.action == Action::generate_stream;
  exchange.route = is_stream ? Route::generate_stream : Route::generate;
  generate(server, exchange, path.target, is_stream, fall_back);
}

// Has the server's own endpoint answer, when what the request has is known to be right.
void check_and_forward(Loop& loop, HttpExchange& exchange, const V2Path& path) {
  exchange.route = Route::own;
  if (path.has_repository)
    return exchange.send(error_response(501, "'repository_name' specification is not supported"));
  const auto target = server_target(path);
  if (!target) return exchange.send(error_response(404, kNotFound));
  const auto forward = [&loop, &exchange, target] {
    exchange.route = Route::triton;
    forward_to_server(loop, exchange, *target, {});
  };
  if (exchange.request().method != "POST") return forward();
  const Action action = path.action;
  if (exchange.request().body.size() <= kLargeJson) {
    answer_failures(exchange, [&] {
      check_control_body(action, exchange.request().body);
      forward();
    });
    return;
  }
  answer_in_background(exchange, exchange.request().body.size(), [&loop, action, forward](Exchange& to) {
    check_control_body(action, to.request().body);
    loop.post([reference = ExchangeReference(to), forward] { forward(); });
  });
}

void leave_to_application(Loop& loop, HttpExchange& exchange) {
  if (SharedCounters* const counters = loop.edge().counters(); counters && exchange.route == Route::predict)
    counters->end();
  exchange.route = Route::application;
  exchange.model.clear();
  forward_to_application(loop, exchange);
}

bool answer_predict(Loop& loop, HttpExchange& exchange) {
  Edge& edge = loop.edge();
  const Request& request = exchange.request();
  std::string_view path = request.path;
  if (!edge.config().predict || request.method != "POST" || !take_prefix(path, "/predict/")) return false;
  if (!request.header("content-encoding").empty() || edge.predict_access().refusal(request, "inference") ||
      path.empty() || path.back() == '/')
    return false;
  const std::string_view name = take_segment(path);
  if (name.empty() || name.find('%') != std::string_view::npos || (!path.empty() && !is_number(path))) return false;
  if (!request.header("origin").empty() || !edge.sites().knows_host(request)) return false;
  exchange.route = Route::predict;
  exchange.model = name;
  if (edge.counters()) edge.counters()->begin();
  return predict(edge.server(), exchange, {std::string(name), path.empty() ? -1 : number_of(path)}, [&loop, &exchange] {
    loop.post([&loop, &exchange, reference = ExchangeReference(exchange)] { leave_to_application(loop, exchange); });
  });
}

// What the application answers, or this in its place. Until all models are loaded for the first time, one that is not
// there may come in a moment, and before the application, which is starting as well.
void answer_for_application(Loop& loop, HttpExchange& exchange, int64_t most_wait_ns) {
  constexpr int64_t kPeriod_ns = 10 * kMillisecond_ns;
  if (answer_predict(loop, exchange)) return;
  const Edge& edge = loop.edge();
  if (exchange.route != Route::predict || edge.has_models() || most_wait_ns < kPeriod_ns)
    return leave_to_application(loop, exchange);
  if (edge.counters()) edge.counters()->end();
  loop.after(kPeriod_ns, [&loop, &exchange, reference = ExchangeReference(exchange), most_wait_ns] {
    answer_for_application(loop, exchange, most_wait_ns - kPeriod_ns);
  });
}

Response refusal_of(const Restriction& restriction) {
  return error_response(403, "This API is restricted, expecting header '" + restriction.header + "'");
}

void refuse_page(HttpExchange& exchange) {
  exchange.send(error_response(403, "pages of other sites may not call this"));
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

Response metrics_response(std::string text) {
  Response page;
  page.content_type = "text/plain; version=0.0.4; charset=utf-8";
  page.body = std::move(text);
  return page;
}

// On another thread, as there may be many models.
void send_metrics(const Edge& edge, HttpExchange& exchange, bool has_own) {
  exchange.route = Route::own;
  run_waiting(exchange.request().peer, [&edge, has_own, reference = ExchangeReference(exchange)] {
    std::string text = server_metrics(edge.server());
    if (has_own) text += edge.metrics_page();
    send_as_accepted(*reference, metrics_response(std::move(text)));
  });
}

// As the server says it of itself while it loads the models of its start.
void say_not_ready(HttpExchange& exchange) {
  exchange.route = Route::own;
  Response response;
  response.status = 400;
  exchange.send(std::move(response));
}

void answer_memory(const Edge& edge, HttpExchange& exchange, const V2Path& path) {
  exchange.route = Route::own;
  run_waiting(exchange.request().peer, [&edge, path, reference = ExchangeReference(exchange)] {
    shared_regions().answer(*reference, path, edge.config().upstream);
  });
}

void answer_v2(Loop& loop, HttpExchange& exchange, const V2Path& path, Entrance entrance) {
  if (is_inference(path.action)) return answer_inference(loop, exchange, path, entrance);
  if (is_shared_memory(path.action)) return answer_memory(loop.edge(), exchange, path);
  if (!is_metadata(path.action)) return check_and_forward(loop, exchange, path);
  exchange.route = Route::own;
  if (path.action == Action::ready && !loop.edge().has_models()) return say_not_ready(exchange);
  answer_metadata(loop.edge().server(), exchange, path);
}

// On other threads, as it may take long.
void inflate_and_answer(Loop& loop, HttpExchange& exchange, const V2Path& path, Entrance entrance) {
  const Request& request = exchange.request();
  const auto inflater = std::make_shared<Inflater>(exchange, request.body, loop.edge().config().max_json_bytes);
  run_in_steps(request.peer, [&loop, &exchange, inflater, reference = ExchangeReference(exchange), path, entrance] {
    const Inflated result = inflater->step();
    if (result == Inflated::unfinished) return true;
    loop.post([&loop, &exchange, inflater, reference, result, path, entrance] {
      switch (result) {
        case Inflated::complete:
          exchange.replace_body(inflater->content, inflater->size, std::move(inflater->charge));
          return answer_v2(loop, exchange, path, entrance);
        case Inflated::too_long:
          return exchange.send(error_response(413, "the request's body is too large when it is decompressed"));
        case Inflated::no_memory:
          return exchange.send(
              error_response(503, "there is no memory for the request's body when it is decompressed"));
        case Inflated::has_more:
          return exchange.send(error_response(400, "bytes follow the compressed body"));
        case Inflated::no_library:
          return exchange.send(error_response(415, "there is no zlib: send bodies that are not compressed"));
        default:
          return exchange.send(
              error_response(400, "the request's body is not compressed as its Content-Encoding says"));
      }
    });
    return false;
  });
}

// The most bytes that a model's inputs can have as binary data.
uint64_t most_binary(const Model& model) {
  uint64_t total = 0;
  for (const Tensor& tensor : model.inputs) {
    uint64_t bytes = bytes_of(tensor.dtype);
    if (!bytes) return UINT64_MAX;  // strings
    if (model.max_batch_size > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(model.max_batch_size), &bytes))
      return UINT64_MAX;
    for (const int64_t extent : tensor.dims)
      if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return UINT64_MAX;
    if (__builtin_add_overflow(total, bytes, &total)) return UINT64_MAX;
  }
  return total;
}

// The most bytes of a body below /v2: JSON, and behind that of an inference as many as the model's shapes allow.
uint64_t most_of(const Edge& edge, const Request& head, const V2Path& path) {
  const Config& config = edge.config();
  const uint64_t most_json = std::min(config.max_json_bytes, config.limits.max_body_bytes);
  if (encoding_of(head) != Encoding::identity) return most_json;
  if (path.action == Action::load) return config.limits.max_body_bytes;  // a model may come with its files
  const std::string_view size = head_size_text(head, path.target);
  uint64_t json = 0;
  if (path.action != Action::infer || size.empty() ||
      std::from_chars(size.data(), size.data() + size.size(), json).ec != std::errc() || json > most_json)
    return most_json;
  try {
    const uint64_t binary = most_binary(*models_of(edge.server()).find(path.target.model, path.target.version));
    return std::min(config.limits.max_body_bytes, binary < UINT64_MAX - json ? json + binary : UINT64_MAX);
  } catch (const std::exception&) {  // there is no such model, as the answer will say
    return most_json;
  }
}

// What is below /v2: nothing of it gets to the server's own endpoint that was not read here.
void route_v2(Loop& loop, HttpExchange& exchange, const V2Path& path, Entrance entrance) {
  const Request& request = exchange.request();
  exchange.route = Route::none;
  if (path.action == Action::none) return exchange.send(error_response(404, kNotFound));
  if (!allows(path.action, request.method)) return exchange.send(error_response(405, "Method Not Allowed"));
  const Encoding encoding = request.method == "POST" ? encoding_of(request) : Encoding::identity;
  if (encoding == Encoding::unknown)
    return exchange.send(error_response(415, "Content-Encoding has to be gzip, deflate or identity"));
  if (encoding == Encoding::compressed) return inflate_and_answer(loop, exchange, path, entrance);
  answer_v2(loop, exchange, path, entrance);
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
    exchange.send(metrics_response(loop.edge().metrics_page()));
  } else if (request.path == "/drain" && request.method == "POST") {
    loop.edge().drain([reference = std::make_shared<ExchangeReference>(exchange)] { (*reference)->send(done()); });
  } else if ((request.path == "/ready" || request.path == "/unready") && request.method == "POST") {
    loop.edge().set_has_models(request.path == "/ready");
    exchange.send(done());
  } else if (const V2Path path = parse_v2_path(request.path); path.action == Action::live && request.method == "GET") {
    // Whoever watches the server asks here: none of the loops may hang.
    loop.edge().on_loops([](Loop& /*each*/, const std::function<void()>& answered) { answered(); },
                         [server = loop.edge().server(), path, reference = ExchangeReference(exchange)] {
                           answer_metadata(server, *reference, path);
                         });
  } else {
    route_v2(loop, exchange, path, Entrance::control);  // the app's requests
  }
}

void route_metrics(const Edge& edge, HttpExchange& exchange) {
  const Request& request = exchange.request();
  exchange.route = Route::none;
  if (request.path != "/metrics") return exchange.send(error_response(404, kNotFound));
  if (request.method != "GET" && request.method != "HEAD")
    return exchange.send(error_response(405, "Method Not Allowed"));
  if (const Restriction* const restriction = edge.access().refusal(request, "metrics"))
    return exchange.send(refusal_of(*restriction));
  send_metrics(edge, exchange, false);
}

// What is below /v2, or by the port of a cloud stands for it.
void check_and_route(Loop& loop, HttpExchange& exchange, Entrance entrance) {
  const Edge& edge = loop.edge();
  const Request& request = exchange.request();
  if (entrance == Entrance::sagemaker && is_below(request.path, "/models"))
    return exchange.send(error_response(
        501, "models are bound by the program that serves them: only http_frontend='triton' loads SageMaker's"));
  const V2Path path = asked_path(edge.config(), entrance, request);
  if (const Restriction* const restriction = edge.access().refusal(request, group_of(path.action)))
    return exchange.send(refusal_of(*restriction));
  if (request.method == "POST" && !edge.sites().may_call(request)) return refuse_page(exchange);
  route_v2(loop, exchange, path, entrance);
}

}  // namespace

Admission admit(const Loop& loop, const Request& head, Entrance entrance) {
  constexpr uint64_t kMargin = 64 << 10;  // so that usually the application says what is wrong
  const Edge& edge = loop.edge();
  const Config& config = edge.config();
  const uint64_t most = config.limits.max_body_bytes;
  if (entrance == Entrance::control) return {most, {}};
  if (entrance != Entrance::application && (entrance != Entrance::server || is_below(head.path, "/v2"))) {
    const V2Path path = asked_path(config, entrance, head);
    if (const Restriction* restriction = edge.access().refusal(head, group_of(path.action)))
      return {0, refusal_of(*restriction)};
    return {most_of(edge, head, path), {}};
  }
  if (config.application.empty() || (entrance == Entrance::server && !config.application_everywhere))
    return {0, error_response(404, "there is no such path")};
  return {std::min(most, config.predict_options.max_body_bytes + kMargin), {}};
}

void route(Loop& loop, HttpExchange& exchange, Entrance entrance) {
  if (entrance == Entrance::control) return route_control(loop, exchange);
  Edge& edge = loop.edge();
  const Request& request = exchange.request();
  const Config& config = edge.config();
  if (config.max_requests && edge.requests_in_flight() > config.max_requests)
    return exchange.send(error_response(503, "the server has too many requests in flight"));
  if (entrance == Entrance::metrics) return route_metrics(edge, exchange);
  if (entrance == Entrance::vertex_ai || entrance == Entrance::sagemaker ||
      (entrance == Entrance::server && is_below(request.path, "/v2")))
    return check_and_route(loop, exchange, entrance);
  if (entrance == Entrance::server && config.metrics && request.path == "/metrics" && request.method == "GET") {
    const Restriction* const restriction = edge.access().refusal(request, "metrics");
    return restriction ? exchange.send(refusal_of(*restriction)) : send_metrics(edge, exchange, true);
  }
  if (config.application.empty() || (entrance == Entrance::server && !config.application_everywhere)) {
    exchange.route = Route::none;
    return exchange.send(error_response(404, "there is no such path"));
  }
  answer_for_application(loop, exchange, kSecond_ns);
}

}  // namespace pytriton::http
