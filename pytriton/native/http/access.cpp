#include "access.h"

#include <algorithm>
#include <cctype>

namespace pytriton::http {

namespace {

// Takes as long wherever the texts differ.
bool is_same(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t index = 0; index < given.size(); ++index)
    difference |= static_cast<unsigned char>(given[index] ^ secret[index % secret.size()]);
  return difference == 0;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// The rest after /v2/models/{model}[/versions/{version}].
std::string_view after_model(std::string_view path) {
  constexpr std::string_view kVersions = "/versions/";
  const size_t slash = path.find('/');
  std::string_view rest = slash == std::string_view::npos ? std::string_view() : path.substr(slash);
  if (starts_with(rest, kVersions)) {
    const size_t end = rest.find('/', kVersions.size());
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  }
  return rest;
}

}  // namespace

std::string_view endpoint_group(std::string_view path) {
  constexpr std::string_view kModels = "/v2/models/";
  if (path == "/v2/models/stats") return "statistics";
  if (starts_with(path, kModels)) {
    const std::string_view rest = after_model(path.substr(kModels.size()));
    if (rest == "/infer" || rest == "/generate" || rest == "/generate_stream") return "inference";
    if (rest.empty()) return "metadata";
    if (rest == "/ready") return "health";
    if (rest == "/config") return "model-config";
    if (rest == "/stats") return "statistics";
    if (rest == "/trace/setting") return "trace";
    return {};
  }
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"/v2/health/", "health"},
      {"/v2/systemsharedmemory/", "shared-memory"},
      {"/v2/cudasharedmemory/", "shared-memory"},
      {"/v2/repository/", "model-repository"},
      {"/v2/trace/setting", "trace"},
      {"/v2/logging", "logging"},
  };
  if (path == "/v2" || path == "/v2/") return "metadata";
  for (const auto& [prefix, group] : kPrefixes)
    if (starts_with(path, prefix)) return group;
  return {};
}

Access::Access(const std::vector<Restriction>& restrictions) {
  for (const Restriction& restriction : restrictions)
    for (const std::string& group : restriction.endpoints) by_group_[group] = {restriction, lower(restriction.header)};
}

const Restriction* Access::refusal(const Request& request, std::string_view group) const {
  if (by_group_.empty() || group.empty()) return nullptr;
  const auto found = by_group_.find(group);
  if (found == by_group_.end()) return nullptr;
  const auto& [restriction, header] = found->second;
  return is_same(request.header(header), restriction.value) ? nullptr : &restriction;
}

}  // namespace pytriton::http
