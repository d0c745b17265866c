#include "predict_wish.h"

#include <algorithm>
#include <charconv>
#include <random>

namespace pytriton::http {

namespace {

constexpr size_t kLongestId = 128;
constexpr std::string_view kJson = "application/json", kLines = "application/x-ndjson", kEvents = "text/event-stream";

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

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::string lower(std::string_view text) {
  std::string folded(text);
  for (char& each : folded)
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  return folded;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Also what curl sends for JSON, and pages of other origins without asking.
bool is_json_type(std::string_view content_type) {
  if (content_type.empty() || content_type == kJson) return true;
  const std::string name = lower(stripped(content_type.substr(0, content_type.find(';'))));
  for (const std::string_view each : {std::string_view(), kJson, std::string_view("application/x-www-form-urlencoded"),
                                      std::string_view("text/plain"), std::string_view("text/json")})
    if (name == each) return true;
  return ends_with(name, "+json");
}

struct Media {
  std::string name;
  double weight = 1;
};

// Nothing if a weight is no plain number.
std::optional<std::vector<Media>> read_accept(std::string_view accept) {
  std::vector<Media> media;
  const std::string text = lower(accept);
  std::string_view rest = text;
  while (true) {
    const size_t end = rest.find(',');
    std::string_view entry = rest.substr(0, end);
    Media& each = media.emplace_back();
    size_t mark = entry.find(';');
    each.name = stripped(entry.substr(0, mark));
    bool is_weighted = false;
    while (mark != std::string_view::npos) {
      entry.remove_prefix(mark + 1);
      mark = entry.find(';');
      const std::string_view parameter = stripped(entry.substr(0, mark));
      if (is_weighted || parameter.substr(0, 2) != "q=") continue;
      is_weighted = true;
      const char* const last = parameter.data() + parameter.size();
      const auto [stop, error] = std::from_chars(parameter.data() + 2, last, each.weight, std::chars_format::fixed);
      if (error != std::errc() || stop != last || !(each.weight >= 0)) return std::nullopt;
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  std::stable_sort(media.begin(), media.end(),
                   [](const Media& one, const Media& other) { return one.weight > other.weight; });
  return media;
}

// Nothing for a form that the application alone knows. `is_stream`: that which the model would have.
std::optional<AnswerForm> read_form(std::string_view accept, bool is_stream) {
  const AnswerForm usual = is_stream ? AnswerForm::lines : AnswerForm::json;
  if (accept.empty() || accept == "*/*") return usual;
  const auto media = read_accept(accept);
  if (!media) return std::nullopt;
  for (const Media& each : *media) {
    if (each.weight == 0) break;
    const std::string& name = each.name;
    if (name == kEvents) return AnswerForm::events;
    if (name == kLines || name == "application/ndjson" || name == "application/jsonl") return AnswerForm::lines;
    if (name == kJson || name == "*/*" || name == "application/*" || name == "text/*") return usual;
    const bool is_binary = name == "application/octet-stream" || name == "application/x-npy" ||
                           name == "application/npy" || name == "application/x-numpy" || name.rfind("image/", 0) == 0;
    if (is_binary) return is_stream ? std::optional(usual) : std::nullopt;
  }
  return usual;
}

bool has_token(std::string_view authorization, std::string_view token) {
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos || !equals_ignoring_case(authorization.substr(0, space), "bearer")) return false;
  const std::string_view given = stripped(authorization.substr(space + 1));
  if (token.empty() || given.size() != token.size()) return false;
  unsigned char difference = 0;  // which takes as long wherever they differ
  for (size_t index = 0; index < token.size(); ++index)
    difference |= static_cast<unsigned char>(given[index] ^ token[index]);
  return !difference;
}

std::string new_id() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    return uint64_t{device()} << 32U | device();
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

std::optional<Wish> read_wish(const Request& request, const PredictOptions& options, bool is_stream) {
  if (request.body.size() > options.max_body_bytes) return std::nullopt;
  const auto type = only_header(request, "content-type"), accept = only_header(request, "accept"),
             site = only_header(request, "sec-fetch-site"), id = only_header(request, "x-request-id");
  if (!type || !accept || !site || !id || !is_json_type(*type)) return std::nullopt;
  if (!site->empty() && *site != "none" && *site != "same-origin") return std::nullopt;
  if (options.has_cors && !request.header("origin").empty()) return std::nullopt;
  if (options.needs_token) {
    const auto authorization = only_header(request, "authorization");
    if (!authorization || !has_token(*authorization, options.access_token)) return std::nullopt;
  }
  const auto form = read_form(*accept, is_stream);
  if (!form) return std::nullopt;
  return Wish{*form, id_of(*id)};
}

}  // namespace pytriton::http
