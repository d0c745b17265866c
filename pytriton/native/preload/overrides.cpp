// Part of the library that is preloaded into servers, for loads of models. A configuration that a model is loaded with,
// and that has no backend and no tensors, such as {"max_batch_size": 16}, gets what it lacks from the one that the
// model is served with. The server alone takes what is lacking as empty, and refuses it.
// pytriton/model_config/parser.py does the same. Names and paths that lead out of a model's folder, or that end the
// server, are refused.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "../frames/failure.h"
#include "../frames/json.h"
#include "../frames/triton.h"
#include "load_checks.h"
#include "model_changes.h"
#include "preloaded.h"
#include "stream_checks.h"

extern "C" {
struct TRITONSERVER_Parameter;
struct TRITONSERVER_Server;
}

namespace {

using Error = TRITONSERVER_Error*;
using Members = std::map<std::string, std::string>;  // name in snake case, and "name": value as written

constexpr const char* kEssential[] = {"backend", "platform", "input", "output"};
constexpr const char* kScheduling[] = {"dynamic_batching", "sequence_batching", "ensemble_scheduling"};

// The endpoints make the parameters of a request, and load the model with them, on one thread.
struct Config {
  const TRITONSERVER_Parameter* parameter = nullptr;
  std::string text;
};
thread_local Config config;
// Why parameters are refused; the endpoints expect that each can be made.
thread_local std::map<const TRITONSERVER_Parameter*, std::string> wrong;

// Notes a new parameter, which may have the place of one that was deleted.
void note(const TRITONSERVER_Parameter* parameter, const char* name, const std::string& config_text = {}) {
  wrong.erase(parameter);
  if (!pytriton::is_on() || !parameter) return;
  std::string reason = pytriton::wrong_file_name(name);
  if (reason.empty() && !config_text.empty()) reason = pytriton::wrong_paths(config_text);
  if (!reason.empty()) wrong[parameter] = std::move(reason);
}

// The error that refuses a load; null if it is not refused.
Error refusal(const char* model, const TRITONSERVER_Parameter** parameters, uint64_t count) {
  if (!pytriton::is_on()) return nullptr;
  std::string reason = pytriton::wrong_model_name(model);
  for (uint64_t index = 0; reason.empty() && index < count; ++index)
    if (const auto found = wrong.find(parameters[index]); found != wrong.end()) reason = found->second;
  return reason.empty() ? nullptr : pytriton::refuse(reason);
}

std::string snake_case(std::string_view name) {
  std::string snake;
  for (const char letter : name) {
    if (std::isupper(static_cast<unsigned char>(letter))) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return snake;
}

// The members of an object, which is JSON.
Members members(std::string_view object) {
  Members found;
  const size_t first = object.find('{') + 1;
  size_t start = first;
  unsigned depth = 0;
  bool in_text = false;
  for (size_t at = first; at < object.size(); ++at) {
    const char letter = object[at];
    if (in_text) {
      if (letter == '\\') ++at;
      if (letter == '"') in_text = false;
      continue;
    }
    const bool is_end = depth == 0 && (letter == ',' || letter == '}');
    if (letter == '"') in_text = true;
    if (letter == '{' || letter == '[') ++depth;
    if ((letter == '}' || letter == ']') && depth > 0) --depth;
    if (!is_end) continue;
    const std::string_view member = object.substr(start, at - start);
    const size_t quote = member.find('"');
    if (quote != std::string_view::npos) {
      const size_t end = member.find('"', quote + 1);
      found[snake_case(member.substr(quote + 1, end - quote - 1))] = member;
    }
    start = at + 1;
  }
  return found;
}

bool is_object(const std::string& text) { return pytriton::Json::parse(text).is(pytriton::Json::Kind::object); }

template <size_t count>
bool has_any(const Members& members, const char* const (&names)[count]) {
  return std::any_of(names, names + count, [&](const char* name) { return members.count(name); });
}

// The configuration that a model is served with; empty if it is not loaded.
std::string own_config(TRITONSERVER_Server* server, const char* model) {
  using Get = Error(TRITONSERVER_Server*, const char*, int64_t, uint32_t, TRITONSERVER_Message**);
  static const auto get = pytriton::next<Get>("TRITONSERVER_ServerModelConfig");
  static const auto serialize =
      pytriton::next<decltype(TRITONSERVER_MessageSerializeToJson)>("TRITONSERVER_MessageSerializeToJson");
  static const auto delete_message = pytriton::next<decltype(TRITONSERVER_MessageDelete)>("TRITONSERVER_MessageDelete");
  static const auto delete_error = pytriton::next<decltype(TRITONSERVER_ErrorDelete)>("TRITONSERVER_ErrorDelete");
  constexpr int64_t kLatest = -1;
  TRITONSERVER_Message* message = nullptr;
  const char* base = nullptr;
  size_t size = 0;
  if (Error error = get(server, model, kLatest, 1, &message)) {
    delete_error(error);
    return {};
  }
  std::string own;
  if (Error error = serialize(message, &base, &size)) {
    delete_error(error);
  } else {
    own.assign(base, size);
  }
  delete_message(message);
  return own;
}

// The whole configuration of a model; empty if the given one is not partial, or the model is not loaded.
std::string filled_up(TRITONSERVER_Server* server, const char* model, const std::string& text) {
  if (!is_object(text)) return {};
  Members given = members(text);
  if (given.empty() || has_any(given, kEssential)) return {};
  const std::string own = own_config(server, model);
  if (own.empty() || !is_object(own)) return {};
  Members whole = members(own);
  if (has_any(given, kScheduling))
    for (const char* name : kScheduling) whole.erase(name);
  for (const auto& [name, member] : given) whole[name] = member;
  std::string filled;
  for (const auto& [name, member] : whole) filled += (filled.empty() ? "{" : ",") + member;
  return filled + "}";
}

}  // namespace

extern "C" {

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name, TRITONSERVER_ParameterType type,
                                                  const void* value) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ParameterNew)>("TRITONSERVER_ParameterNew");
  TRITONSERVER_Parameter* parameter = server_s(name, type, value);
  if (type == TRITONSERVER_PARAMETER_STRING && std::string_view(name) == "config") {
    config = {parameter, static_cast<const char*>(value)};
    note(parameter, name, config.text);
    return parameter;
  }
  if (parameter == config.parameter) config = {};  // that one was deleted, and this has its place
  note(parameter, name);
  return parameter;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char* name, const void* data, uint64_t size) {
  static const auto server_s =
      pytriton::next<decltype(TRITONSERVER_ParameterBytesNew)>("TRITONSERVER_ParameterBytesNew");
  TRITONSERVER_Parameter* parameter = server_s(name, data, size);
  if (parameter == config.parameter) config = {};
  note(parameter, name);
  return parameter;
}

Error TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server, const char* model) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ServerLoadModel)>("TRITONSERVER_ServerLoadModel");
  if (Error error = refusal(model, nullptr, 0)) return error;
  const pytriton::ModelChange change;
  Error error = server_s(server, model);
  if (!error) pytriton::note_loaded(server, model);
  return error;
}

Error TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server* server, const char* model,
                                                 const TRITONSERVER_Parameter** parameters, uint64_t count) {
  static const auto server_s = pytriton::next<decltype(TRITONSERVER_ServerLoadModelWithParameters)>(
      "TRITONSERVER_ServerLoadModelWithParameters");
  static const auto delete_parameter = pytriton::next<void(TRITONSERVER_Parameter*)>("TRITONSERVER_ParameterDelete");
  Error error = refusal(model, parameters, count);
  wrong.clear();
  if (error) {
    config = {};
    return error;
  }
  const pytriton::ModelChange change;
  std::vector<const TRITONSERVER_Parameter*> all(parameters, parameters + count);
  const auto given = config.parameter ? std::find(all.begin(), all.end(), config.parameter) : all.end();
  std::string whole;
  if (pytriton::is_on() && given != all.end()) {
    try {
      whole = filled_up(server, model, config.text);
    } catch (const pytriton::FrameError&) {
      // No JSON, of which the server tells.
    }
  }
  config = {};
  if (whole.empty()) {
    error = server_s(server, model, parameters, count);
    if (!error) pytriton::note_loaded(server, model);
    return error;
  }
  TRITONSERVER_Parameter* filled = TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, whole.c_str());
  *given = filled;
  error = server_s(server, model, all.data(), count);
  delete_parameter(filled);
  config = {};
  if (!error) pytriton::note_loaded(server, model);
  return error;
}
}
