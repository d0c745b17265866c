#include "model_names.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preloaded.h"

extern "C" {
struct TRITONSERVER_Message;
struct TRITONSERVER_Server;
}

namespace pytriton {

namespace {

constexpr size_t kMostNames = 1000, kMostLength = 200;  // what a client may have compared with its name

std::mutex mutex;

std::set<std::string>& names() {
  static auto& names = *new std::set<std::string>;  // never destroyed, as threads of the server may use it at its exit
  return names;
}

bool tells_names() {
  static const bool tells = [] {
    const char* variable = std::getenv("PYTRITON_TELLS_NAMES");
    return variable && std::string_view(variable) == "1";
  }();
  return tells && is_on();
}

// How many characters have to be changed, added or removed.
size_t distance(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < one.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < other.size(); ++j) {
      const size_t changed = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
    }
  }
  return row.back();
}

// The name that differs in two fifths of its characters or less; empty if there is none, or the model is loaded.
std::string nearest(std::string_view model) {
  if (!tells_names() || model.size() > kMostLength) return {};
  const std::lock_guard<std::mutex> lock(mutex);
  if (names().size() > kMostNames || names().count(std::string(model))) return {};
  std::string found;
  size_t least = SIZE_MAX;
  for (const std::string& name : names()) {
    const size_t longest = std::max(model.size(), name.size()), shortest = std::min(model.size(), name.size());
    if (5 * (longest - shortest) > 2 * longest) continue;
    const size_t changes = distance(model, name);
    if (changes < least && 5 * changes <= 2 * longest) {
      found = name;
      least = changes;
    }
  }
  return found;
}

// What follows the text of an error.
std::string question_about(const std::string& name) { return name.empty() ? "" : "; did you mean '" + name + "'?"; }

}  // namespace

void add_model_name(const char* model) {
  if (!tells_names() || std::string_view(model).size() > kMostLength) return;
  const std::lock_guard<std::mutex> lock(mutex);
  names().emplace(model);
}

void remove_model_name(const char* model) {
  const std::lock_guard<std::mutex> lock(mutex);
  names().erase(model);
}

TRITONSERVER_Error* with_nearest_name(TRITONSERVER_Error* error, const char* model) {
  static const auto code_of = next<decltype(TRITONSERVER_ErrorCode)>("TRITONSERVER_ErrorCode");
  static const auto message_of = next<decltype(TRITONSERVER_ErrorMessage)>("TRITONSERVER_ErrorMessage");
  static const auto new_error = next<decltype(TRITONSERVER_ErrorNew)>("TRITONSERVER_ErrorNew");
  static const auto remove = next<decltype(TRITONSERVER_ErrorDelete)>("TRITONSERVER_ErrorDelete");
  if (!error) return error;
  const std::string message = message_of(error);
  if (message.find("unknown model") == std::string::npos) return error;
  const std::string question = question_about(nearest(model));
  if (question.empty()) return error;
  TRITONSERVER_Error* const better = new_error(code_of(error), (message + question).c_str());
  remove(error);
  return better;
}

}  // namespace pytriton

extern "C" {

const char* pytriton_question_about(const char* model) {
  thread_local std::string question;
  question = pytriton::question_about(pytriton::nearest(model));
  return question.c_str();
}

TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server* server, const char* model, int64_t version,
                                                   uint32_t config_version, TRITONSERVER_Message** config) {
  static const auto server_s =
      pytriton::next<decltype(TRITONSERVER_ServerModelConfig)>("TRITONSERVER_ServerModelConfig");
  TRITONSERVER_Error* const error = server_s(server, model, version, config_version, config);
  if (!error) pytriton::add_model_name(model);
  return pytriton::with_nearest_name(error, model);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server* server, const char* model, int64_t version,
                                                     TRITONSERVER_Message** metadata) {
  static const auto server_s =
      pytriton::next<decltype(TRITONSERVER_ServerModelMetadata)>("TRITONSERVER_ServerModelMetadata");
  return pytriton::with_nearest_name(server_s(server, model, version, metadata), model);
}
}
