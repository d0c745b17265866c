#include "metadata.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "../edge/background.h"
#include "../edge/error_response.h"
#include "control_body.h"
#include "infer_answer.h"
#include "json_elements.h"

namespace pytriton::http {

namespace {

TRITONSERVER_Message* fetch(TRITONSERVER_Server* server, Action action, const Target& target, bool ready_alone) {
  const char* const model = target.model.c_str();
  TRITONSERVER_Message* message = nullptr;
  switch (action) {
    case Action::metadata:
      check(TRITONSERVER_ServerMetadata(server, &message));
      break;
    case Action::model:
      check(TRITONSERVER_ServerModelMetadata(server, model, target.version, &message));
      break;
    case Action::config:
      check(TRITONSERVER_ServerModelConfig(server, model, target.version, 1, &message));
      break;
    case Action::statistics:
      check(TRITONSERVER_ServerModelStatistics(server, model, target.version, &message));
      break;
    default:
      check(TRITONSERVER_ServerModelIndex(server, ready_alone ? TRITONSERVER_INDEX_FLAG_READY : 0, &message));
  }
  return message;
}

void send_health(Exchange& exchange, bool is_healthy) {
  Response answer;
  answer.status = is_healthy ? 200 : 400;
  answer.content_type = "text/plain";
  exchange.send(std::move(answer));
}

bool is_model_ready(TRITONSERVER_Server* server, const Target& target) {
  bool is_ready = false;
  return ignore(TRITONSERVER_ServerModelIsReady(server, target.model.c_str(), target.version, &is_ready)) && is_ready;
}

// The name that may be meant, of the preloaded library; empty if there is none.
std::string question_about(const std::string& model) {
  static const auto question =
      reinterpret_cast<const char* (*)(const char*)>(dlsym(RTLD_DEFAULT, "pytriton_question_about"));
  return question ? question(model.c_str()) : "";
}

// Whether the index is asked for ready models alone. Throws Failure.
bool wants_ready_models(std::string_view body) {
  if (body.empty()) return false;
  JsonParser parser;
  auto document = parser.parse(body);
  bool is_ready = false;
  for (auto each : members_of(document)) {
    auto field = checked(std::move(each));
    if (checked(field.unescaped_key()) != "ready") {
      skip(field.value(), kControlLevels);
    } else if (field.value().get_bool().get(is_ready)) {
      throw Failure(Code::invalid_argument, "Unable to parse 'ready': attempt to access JSON non-boolean as boolean");
    }
  }
  check_end(document);
  return is_ready;
}

// Throws Failure.
void answer(TRITONSERVER_Server* server, Exchange& exchange, const V2Path& path) {
  bool is_healthy = false;
  switch (path.action) {
    case Action::live:
      return send_health(exchange, ignore(TRITONSERVER_ServerIsLive(server, &is_healthy)) && is_healthy);
    case Action::ready:
      return send_health(exchange, ignore(TRITONSERVER_ServerIsReady(server, &is_healthy)) && is_healthy);
    case Action::model_ready:
      if (is_model_ready(server, path.target)) return send_health(exchange, true);
      throw Failure(Code::invalid_argument, "Model version not ready" + question_about(path.target.model));
    default: {
      Response answer;
      answer.body = describe(server, path.action, path.target,
                             path.action == Action::index && wants_ready_models(exchange.request().body));
      return exchange.send(std::move(answer));
    }
  }
}

}  // namespace

std::string describe(TRITONSERVER_Server* server, Action action, const Target& target, bool ready_alone) {
  const MessagePointer message(fetch(server, action, target, ready_alone));
  const char* base = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message.get(), &base, &size));
  std::string json;
  json.reserve(size + kPadding);
  json.assign(base, size);
  return json;
}

void answer_metadata(TRITONSERVER_Server* server, Exchange& exchange, const V2Path& path) {
  const auto send = [server](Exchange& to, const V2Path& of) { answer_failures(to, [&] { answer(server, to, of); }); };
  // Those of all models may take long, and the index waits while the repository is read.
  if (path.action != Action::statistics && path.action != Action::index) return send(exchange, path);
  run_waiting(exchange.request().peer,
              [send, path, reference = ExchangeReference(exchange)] { send(*reference, path); });
}

}  // namespace pytriton::http
