#include "v2_path.h"

#include <algorithm>
#include <optional>

namespace pytriton::http {

namespace {

struct Word {
  std::string_view text;
  Action action;
};

constexpr Word kPaths[] = {{"/v2", Action::metadata},
                           {"/v2/health/live", Action::live},
                           {"/v2/health/ready", Action::ready},
                           {"/v2/models/stats", Action::statistics},
                           {"/v2/trace/setting", Action::trace},
                           {"/v2/logging", Action::logging}};
// After /v2/models/{model}[/versions/{version}]
constexpr Word kOfModel[] = {{"", Action::model},
                             {"infer", Action::infer},
                             {"generate", Action::generate},
                             {"generate_stream", Action::generate_stream},
                             {"ready", Action::model_ready},
                             {"config", Action::config},
                             {"stats", Action::statistics},
                             {"trace/setting", Action::trace}};
// After /v2/systemsharedmemory[/region/{region}] and /v2/cudasharedmemory[/region/{region}]
constexpr Word kOfMemory[] = {{"status", Action::memory_status},
                              {"register", Action::memory_register},
                              {"unregister", Action::memory_unregister}};

template <size_t kCount>
Action find(const Word (&words)[kCount], std::string_view text) {
  const auto* const found =
      std::find_if(std::begin(words), std::end(words), [&](const Word& each) { return each.text == text; });
  return found == std::end(words) ? Action::none : found->action;
}

template <size_t kCount>
std::string_view word_of(const Word (&words)[kCount], Action action) {
  const auto* const found =
      std::find_if(std::begin(words), std::end(words), [&](const Word& each) { return each.action == action; });
  return found == std::end(words) ? std::string_view() : found->text;
}

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  letter |= 0x20;
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

// A name as it was before it was put into the path; nothing if it was not written right, or has a NUL, before which the
// server's functions would end it.
std::optional<std::string> decoded(std::string_view segment) {
  if (segment.empty()) return std::nullopt;
  if (segment.find_first_of(std::string_view("%\0", 2)) == std::string_view::npos) return std::string(segment);
  std::string name;
  for (size_t index = 0; index < segment.size(); ++index) {
    char letter = segment[index];
    if (letter == '%') {
      if (segment.size() - index < 3) return std::nullopt;
      const int high = digit_of(segment[index + 1]), low = digit_of(segment[index + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      letter = static_cast<char>(high * 16 + low);
      index += 2;
    }
    if (!letter) return std::nullopt;
    name += letter;
  }
  return name;
}

V2Path of_model(std::string_view rest) {
  V2Path path;
  const bool has_more = rest.find('/') != std::string_view::npos;
  auto model = decoded(take_segment(rest));
  if (!model || (has_more && rest.empty())) return {};
  path.target.model = std::move(*model);
  if (take_prefix(rest, "versions/")) {
    const bool has_action = rest.find('/') != std::string_view::npos;
    const std::string_view version = take_segment(rest);
    if (!is_number(version) || (has_action && rest.empty())) return {};
    path.target.version = number_of(version);
  }
  path.action = find(kOfModel, rest);
  return path;
}

V2Path of_repository(std::string_view rest) {
  V2Path path;
  if (rest != "index" && rest.substr(0, 7) != "models/") {
    path.has_repository = true;
    take_segment(rest);
  }
  if (rest == "index") {
    path.action = Action::index;
    return path;
  }
  if (!take_prefix(rest, "models/")) return {};
  auto model = decoded(take_segment(rest));
  if (!model) return {};
  path.target.model = std::move(*model);
  path.action = rest == "load" ? Action::load : rest == "unload" ? Action::unload : Action::none;
  return path;
}

V2Path of_memory(std::string_view rest, bool is_cuda) {
  V2Path path;
  path.is_cuda = is_cuda;
  if (take_prefix(rest, "region/")) {
    auto region = decoded(take_segment(rest));
    if (!region) return {};
    path.region = std::move(*region);
  }
  path.action = find(kOfMemory, rest);
  return path;
}

// Whether a character may be part of a segment as it is.
bool is_of_path(char letter) {
  constexpr std::string_view kMarks = "-._~!$&'()*+,;=:@";
  return (letter >= '0' && letter <= '9') || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z') ||
         kMarks.find(letter) != std::string_view::npos;
}

}  // namespace

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

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

V2Path parse_v2_path(std::string_view path) {
  if (const Action action = find(kPaths, path); action != Action::none) {
    V2Path found;
    found.action = action;
    return found;
  }
  if (take_prefix(path, "/v2/models/")) return of_model(path);
  if (take_prefix(path, "/v2/repository/")) return of_repository(path);
  if (take_prefix(path, "/v2/systemsharedmemory/")) return of_memory(path, false);
  if (take_prefix(path, "/v2/cudasharedmemory/")) return of_memory(path, true);
  return {};
}

std::optional<std::string> server_target(const V2Path& path) {
  std::string target;
  const auto add = [&](std::string_view before, std::string_view name) {
    target.append(before).append(name);
    return std::all_of(name.begin(), name.end(), is_of_path);
  };
  switch (path.action) {
    case Action::logging:
      return "/v2/logging";
    case Action::load:
    case Action::unload:
      if (!add("/v2/repository/models/", path.target.model)) return std::nullopt;
      return target + (path.action == Action::load ? "/load" : "/unload");
    case Action::memory_status:
    case Action::memory_register:
    case Action::memory_unregister:
      target = path.is_cuda ? "/v2/cudasharedmemory" : "/v2/systemsharedmemory";
      if (!path.region.empty() && !add("/region/", path.region)) return std::nullopt;
      return target.append("/").append(word_of(kOfMemory, path.action));
    default:
      target = "/v2";
      if (!path.target.model.empty() && !add("/models/", path.target.model)) return std::nullopt;
      if (path.target.version >= 0) add("/versions/", std::to_string(path.target.version));
      return target.append("/").append(word_of(kOfModel, path.action));
  }
}

std::string_view group_of(Action action) {
  switch (action) {
    case Action::none:
      return {};
    case Action::live:
    case Action::ready:
    case Action::model_ready:
      return "health";
    case Action::metadata:
    case Action::model:
      return "metadata";
    case Action::config:
      return "model-config";
    case Action::statistics:
      return "statistics";
    case Action::infer:
    case Action::generate:
    case Action::generate_stream:
      return "inference";
    case Action::trace:
      return "trace";
    case Action::logging:
      return "logging";
    case Action::index:
    case Action::load:
    case Action::unload:
      return "model-repository";
    case Action::memory_status:
    case Action::memory_register:
    case Action::memory_unregister:
      return "shared-memory";
  }
  return {};
}

bool is_inference(Action action) {
  return action == Action::infer || action == Action::generate || action == Action::generate_stream;
}

bool is_metadata(Action action) {
  switch (action) {
    case Action::live:
    case Action::ready:
    case Action::model_ready:
    case Action::metadata:
    case Action::model:
    case Action::config:
    case Action::statistics:
    case Action::index:
      return true;
    default:
      return false;
  }
}

bool is_shared_memory(Action action) {
  return action == Action::memory_status || action == Action::memory_register || action == Action::memory_unregister;
}

bool allows(Action action, std::string_view method) {
  switch (action) {
    case Action::infer:
    case Action::generate:
    case Action::generate_stream:
    case Action::index:
    case Action::load:
    case Action::unload:
    case Action::memory_register:
    case Action::memory_unregister:
      return method == "POST";
    case Action::trace:
    case Action::logging:
      return method == "GET" || method == "POST";
    default:
      return method == "GET";
  }
}

}  // namespace pytriton::http
