#include "answer_options.h"

#include <sys/random.h>

#include <algorithm>
#include <random>
#include <string_view>

namespace pytriton::http {

namespace {

constexpr size_t kLongestId = 128;
constexpr std::string_view kJson = "application/json";

// The value of a header that was sent once; empty if it was not sent.
std::optional<std::string_view> only_header(const Request& request, std::string_view name) {
  std::optional<std::string_view> found;
  for (const Header& each : request.headers) {
    if (!equals_ignoring_case(each.name, name)) continue;
    if (found) return std::nullopt;
    found = each.value;
  }
  return found ? found : std::string_view();
}

bool is_json(std::string_view content_type) {
  return content_type.empty() || equals_ignoring_case(trimmed(content_type.substr(0, content_type.find(';'))), kJson);
}

// Whether a header asks for what a model answers with in any case; axios sends the third.
bool accepts_usual(std::string_view accept) {
  return accept.empty() || accept == "*/*" || accept == "application/json, text/plain, */*" || accept == kJson;
}

std::string new_id() {
  thread_local std::mt19937_64 random{[] {
    uint64_t seed = 0;  // std::random_device needs glibc 2.36 where libstdc++ was built with it
    while (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) continue;
    return seed;
  }()};
  constexpr const char* kDigits = "0123456789abcdef";
  std::string id;
  for (const uint64_t half : {random(), random()})
    for (int shift = 60; shift >= 0; shift -= 4) id += kDigits[half >> static_cast<unsigned>(shift) & 0xFU];
  return id;
}

std::string id_of(std::string_view given) {
  const bool is_usable = !given.empty() && given.size() <= kLongestId &&
                         std::all_of(given.begin(), given.end(), [](char each) { return each >= '!' && each <= '~'; });
  return is_usable ? std::string(given) : new_id();
}

}  // namespace

std::optional<AnswerOptions> read_answer_options(const Request& request, const PredictOptions& options,
                                                 bool is_stream) {
  if (request.body.size() > options.max_body_bytes) return std::nullopt;
  const auto type = only_header(request, "content-type"), accept = only_header(request, "accept"),
             site = only_header(request, "sec-fetch-site"), id = only_header(request, "x-request-id");
  if (!type || !accept || !site || !id || !is_json(*type)) return std::nullopt;
  if (!site->empty() && *site != "none" && *site != "same-origin") return std::nullopt;
  const bool has_events = is_stream && *accept == "text/event-stream";
  const bool has_lines = is_stream && *accept == "application/x-ndjson";
  if (!has_events && !has_lines && !accepts_usual(*accept)) return std::nullopt;
  return AnswerOptions{has_events, id_of(*id)};
}

}  // namespace pytriton::http
