// Control of models through the server's C API; shared memory and settings, which that does not have, through its HTTP
// endpoint on a private socket.
#include <memory>
#include <vector>

#include "../edge/background.h"
#include "../edge/server_call.h"
#include "../frames/json.h"
#include "grpc_control_request.h"
#include "grpc_routes.h"
#include "json_message.h"
#include "proto.h"

extern "C" {
TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char* name, const void* data, uint64_t size);
TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server* server, const char* model,
                                                               const TRITONSERVER_Parameter** parameters,
                                                               uint64_t count);
TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server, const char* model);
TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server* server, const char* model);
}

namespace pytriton::http {

namespace {

constexpr unsigned kEntries = 1;  // of all answers with a map

struct ParameterDeleter {
  void operator()(TRITONSERVER_Parameter* parameter) const { TRITONSERVER_ParameterDelete(parameter); }
};

void load(TRITONSERVER_Server* server, const ModelControl& control) {
  std::vector<std::unique_ptr<TRITONSERVER_Parameter, ParameterDeleter>> owners;
  if (control.has_config)
    owners.emplace_back(TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, control.config.c_str()));
  for (const auto& [name, content] : control.files)
    owners.emplace_back(TRITONSERVER_ParameterBytesNew(name.c_str(), content.data(), content.size()));
  std::vector<const TRITONSERVER_Parameter*> parameters;
  parameters.reserve(owners.size());
  for (const auto& each : owners) parameters.push_back(each.get());
  check(
      TRITONSERVER_ServerLoadModelWithParameters(server, control.model.c_str(), parameters.data(), parameters.size()));
}

std::string control_model(const GrpcCall& call) {
  TRITONSERVER_Server* const server = call.edge().server();
  const Action action = call.method().action;
  const ModelControl control = read_model_control(call.body(), action);
  if (action == Action::load) {
    load(server, control);
  } else {
    check(control.with_dependents ? TRITONSERVER_ServerUnloadModelAndDependents(server, control.model.c_str())
                                  : TRITONSERVER_ServerUnloadModel(server, control.model.c_str()));
  }
  return {};
}

Json checked_answer(const ServerAnswer& answer) {
  constexpr int kOk = 200, kInvalid = 400, kUnknown = 404, kUnsupported = 501, kUnavailable = 503;
  if (answer.status == kOk) return answer.body.empty() ? Json() : Json::parse(answer.body);
  const Json json = Json::parse(answer.body);
  const Json* const message = json.find("error");
  const Code code = answer.status == kInvalid       ? Code::invalid_argument
                    : answer.status == kUnknown     ? Code::not_found
                    : answer.status == kUnsupported ? Code::unsupported
                    : answer.status == kUnavailable ? Code::unavailable
                                                    : Code::internal;
  throw Failure(code, message ? message->text() : "the server has refused the request");
}

void append_entry(std::string& to, std::string_view key, std::string_view value) {
  std::string entry;
  ProtoWriter writer(entry);
  writer.bytes(kEntryKey, key);
  writer.bytes(kEntryValue, value);
  ProtoWriter(to).bytes(kEntries, entry);
}

std::string region_of(const Json& json, bool is_cuda) {
  std::string region;
  ProtoWriter writer(region);
  writer.bytes(1, json["name"].text());
  if (is_cuda) {
    writer.varint(2, static_cast<uint64_t>(json["device_id"].integer()));
    writer.varint(3, static_cast<uint64_t>(json["byte_size"].integer()));
  } else {
    writer.bytes(2, json["key"].text());
    writer.varint(3, static_cast<uint64_t>(json["offset"].integer()));
    writer.varint(4, static_cast<uint64_t>(json["byte_size"].integer()));
  }
  return region;
}

std::string ask_for_memory(const GrpcCall& call) {
  V2Path path;
  path.action = call.method().action;
  path.is_cuda = call.method().is_cuda;
  MemoryRequest request = read_memory_request(call.body(), path);
  path.region = std::move(request.name);
  const Json json = checked_answer(shared_regions().ask(path, request.registration, call.edge().config().upstream));
  std::string text;
  if (path.action == Action::memory_status)
    for (const Json& each : json.list()) append_entry(text, each["name"].text(), region_of(each, path.is_cuda));
  return text;
}

void append_value(ProtoWriter& writer, const Json& json, bool is_of_traces) {
  switch (json.kind()) {
    case Json::Kind::boolean:
      return writer.flag(1, json.boolean());
    case Json::Kind::number:
      return writer.varint(2, static_cast<uint64_t>(json.integer()));
    case Json::Kind::list:
      for (const Json& each : json.list()) writer.bytes(1, each.text());
      return;
    default:
      writer.bytes(is_of_traces ? 1 : 3, json.text());
  }
}

std::string ask_for_settings(const GrpcCall& call) {
  V2Path path;
  path.action = call.method().action;
  SettingsRequest request = read_settings(call.body(), path.action);
  path.target.model = std::move(request.model);
  const auto target = server_target(path);
  if (!target) throw Failure(Code::not_found, "there is no model '" + path.target.model + "'");
  const Json json = checked_answer(
      ask_server(call.edge().config().upstream, request.json.empty() ? "GET" : "POST", *target, request.json));
  std::string text;
  for (const auto& [name, value] : json.object()) {
    std::string setting;
    ProtoWriter writer(setting);
    append_value(writer, value, path.action == Action::trace);
    append_entry(text, name, setting);
  }
  return text;
}

}  // namespace

void control_grpc(GrpcCall& call) {
  const bool is_of_models = call.method().method == Method::model_control;
  const auto run = is_of_models ? run_loading : run_waiting;
  run(call.connection().peer(), [&call, reference = Reference<GrpcCall>(call), is_of_models] {
    answer_or_fail(call, [&] {
      std::string text = is_of_models                             ? control_model(call)
                         : call.method().method == Method::memory ? ask_for_memory(call)
                                                                  : ask_for_settings(call);
      call.answer(message_of(std::move(text)), true, true);
    });
  });
}

}  // namespace pytriton::http
