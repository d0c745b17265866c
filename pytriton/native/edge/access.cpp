#include "access.h"

namespace pytriton::http {

namespace {

constexpr std::string_view kTokenHeader = "triton-access-token";  // its value may also be that of a bearer

// Takes as long wherever the texts differ.
bool is_same(std::string_view given, std::string_view secret) {
  if (secret.empty()) return false;
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t index = 0; index < given.size(); ++index)
    difference |= static_cast<unsigned char>(given[index] ^ secret[index % secret.size()]);
  return difference == 0;
}

// The token of `Authorization: Bearer <token>`.
std::string_view bearer_token(std::string_view authorization) {
  const size_t space = authorization.find(' ');
  if (!equals_ignoring_case(authorization.substr(0, space), "bearer") || space == std::string_view::npos) return {};
  return trimmed(authorization.substr(space));
}

}  // namespace

Access::Access(const std::vector<Restriction>& restrictions) {
  for (const Restriction& restriction : restrictions)
    for (const std::string& group : restriction.endpoints)
      by_group_[group].emplace_back(restriction, in_lower_case(restriction.header));
}

const Restriction* Access::refusal(const Request& request, std::string_view group) const {
  if (by_group_.empty() || group.empty()) return nullptr;
  const auto found = by_group_.find(group);
  if (found == by_group_.end()) return nullptr;
  for (const auto& [restriction, header] : found->second) {
    if (is_same(request.header(header), restriction.value)) return nullptr;
    if (header == kTokenHeader && is_same(bearer_token(request.header("authorization")), restriction.value))
      return nullptr;
  }
  return &found->second.front().first;
}

}  // namespace pytriton::http
