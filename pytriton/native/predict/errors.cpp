#include "errors.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "../edge/clock.h"
#include "../edge/route_options.h"
#include "../frames/handles.h"
#include "../frames/json.h"

namespace pytriton::http {

namespace {

constexpr std::string_view kQueueFull = "maximum queue size", kExpired = "timeout expired";  // of the server's messages
constexpr const char* kInstancesName = "\"instances\"";

struct Name {
  Code code;
  int status;
  const char* name;
};
constexpr Name kNames[] = {
    {Code::invalid_argument, 400, "INVALID_ARG"},
    {Code::not_found, 404, "NOT_FOUND"},
    {Code::already_exists, 400, "ALREADY_EXISTS"},
    {Code::unavailable, 503, "UNAVAILABLE"},
    {Code::unsupported, 501, "UNSUPPORTED"},
    {Code::cancelled, 400, "CANCELLED"},
    {Code::unknown, 400, "UNKNOWN"},
    {Code::internal, 500, "INTERNAL"},
};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool has_ignoring_case(std::string_view text, std::string_view lower) {
  std::string folded(text);
  for (char& each : folded)
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  return has(folded, lower);
}

// The problems that a callable tells (pytriton/signature/validation.py), and how many more. Throws FrameError if the
// details are something else.
void read_details(std::string_view text, PredictError& error) {
  const Json details = Json::parse(text);
  for (const Json& each : details["details"].list()) {
    Problem& problem = error.problems.emplace_back();
    problem.expected = each["expected"].text();
    problem.got = each["got"].text();
    for (const Json& part : each["path"].list()) {
      std::string& name = problem.path.emplace_back();
      if (part.is(Json::Kind::text)) {
        append_json(name, part.text());
      } else {
        name = std::to_string(part.integer());
      }
    }
  }
  if (const Json* const more = details.find("more"))
    error.more = static_cast<size_t>(std::max<int64_t>(more->integer(), 0));
}

// What the details tell, if there are some; `message` is the text before them.
void take_details(std::string& message, PredictError& error) {
  const size_t mark = message.rfind(kDetailsMark);
  if (mark == std::string::npos) return;
  try {
    read_details(std::string_view(message).substr(mark + std::string_view(kDetailsSeparator).size()), error);
  } catch (const FrameError&) {  // of a callable that writes the mark
    error.problems.clear();
    error.more = 0;
  }
  message.resize(mark);
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& each : parts) text.append(text.empty() ? "" : separator).append(each);
  return text;
}

// As Python says it.
std::string message_of(const std::vector<Problem>& problems, size_t more) {
  std::string message;
  for (const Problem& each : problems) {
    message.append(message.empty() ? "[" : "; [").append(joined(each.path, ", "));
    message.append("]: expected ").append(each.expected).append(", got ").append(each.got);
  }
  return more ? message + "; and " + std::to_string(more) + " more" : message;
}

// The text as far as a number of characters.
std::string_view cut(std::string_view text, size_t characters) {
  for (size_t at = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (begins && !characters--) return text.substr(0, at);
  }
  return text;
}

// With the first problems alone.
std::string json_of(const PredictError& error, std::string_view message, size_t count) {
  const std::vector<Problem>& problems = error.problems;
  std::string text = R"({"error":{"code":")" + error.code + R"(","message":)";
  append_json(text, message);
  for (size_t index = 0; index < count; ++index) {
    const Problem& problem = problems[index];
    text += index ? R"(,{"path":[)" : R"(,"details":[{"path":[)";
    text += joined(problem.path, ",") + R"(],"expected":)";
    append_json(text, problem.expected);
    text += ",\"got\":";
    append_json(text, problem.got);
    text += '}';
  }
  if (count) text += ']';
  if (const size_t more = error.more + problems.size() - count) text += ",\"more\":" + std::to_string(more);
  return text + "}}";
}

// A client that makes requests fail does not fill the log: lines beyond a burst and a rate are counted only.
class SparingLog {
 public:
  void warning(const std::string& request_id, const std::string& message) {
    uint64_t left_out = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      lines_ = std::min(kMostLines, lines_ + std::chrono::duration<double>(now - filled_).count() * kLinesPerSecond);
      filled_ = now;
      if (lines_ < 1) {
        ++left_out_;
        return;
      }
      --lines_;
      left_out = std::exchange(left_out_, 0);
    }
    if (left_out) log_warning(std::to_string(left_out) + " more requests failed; their messages were left out");
    log_warning("request " + request_id + ": " + message);
  }

 private:
  static constexpr double kMostLines = 100, kLinesPerSecond = 10;  // as pytriton/rest/errors.py has them

  std::mutex mutex_;
  double lines_ = kMostLines;
  std::chrono::steady_clock::time_point filled_ = std::chrono::steady_clock::now();
  uint64_t left_out_ = 0;
};

}  // namespace

std::string PredictError::json() const {
  constexpr size_t kMostCharacters = 2000;  // of a message that is longer: with each escaped, it fits
  const std::string_view whole = cut(message, kMostErrorBytes);
  size_t count = problems.size();
  std::string text = json_of(*this, whole, count);
  while (text.size() > kMostErrorBytes && count) text = json_of(*this, whole, --count);
  if (text.size() <= kMostErrorBytes) return text;
  return json_of(*this, std::string(cut(message, kMostCharacters)) + "...", 0);
}

Response make_error(const PredictError& error, const std::string& request_id) {
  Response response;
  response.status = error.status;
  response.headers = (error.is_temporary ? "Retry-After: 1\r\nX-Request-ID: " : "X-Request-ID: ") + request_id + "\r\n";
  response.body = error.json();
  return response;
}

PredictError shown(PredictError error, const std::string& request_id) {
  if (error.status != 500 || route_options().predict.shows_errors) return error;
  static SparingLog log;
  log.warning(request_id, error.message);
  error.message = "internal error; the log tells it, for request " + request_id;
  return error;
}

bool is_queue_full(const Failure& failure) {
  return failure.code == Code::unavailable && has(failure.what(), kQueueFull);
}

PredictError error_of(const Failure& failure) {
  PredictError error;
  error.message = is_utf8(failure.what()) ? failure.what() : "the model's message is not UTF-8";
  if (failure.code == Code::invalid_argument) take_details(error.message, error);
  if (failure.code == Code::unavailable && has_ignoring_case(error.message, kExpired)) {
    error.status = 504;
    error.code = "DEADLINE_EXCEEDED";
    return error;
  }
  if (is_queue_full(failure)) {
    error.status = 429;
    error.code = "TOO_MANY_REQUESTS";
    error.is_temporary = true;
    return error;
  }
  if (!error.problems.empty()) {
    error.status = 422;
    error.code = "INVALID_INPUT";
    error.message = message_of(error.problems, error.more);
    return error;
  }
  for (const Name& each : kNames) {
    if (each.code != failure.code) continue;
    error.status = each.status;
    error.code = each.name;
  }
  error.is_temporary = failure.code == Code::unavailable;
  return error;
}

PredictError error_of_instances(const Failure& failure, const std::vector<size_t>& rows) {
  PredictError error = error_of(failure);
  if (error.problems.empty()) {
    std::string numbers;
    for (const size_t row : rows) numbers += (numbers.empty() ? "" : ", ") + std::to_string(row);
    error.message = std::string(rows.size() > 1 ? "instances " : "instance ") + numbers + ": " + error.message;
    return error;
  }
  for (Problem& problem : error.problems) {
    std::vector<std::string>& path = problem.path;
    size_t row = 0;
    if (!path.empty() && path[0][0] != '"') {
      row = static_cast<size_t>(std::strtoull(path[0].c_str(), nullptr, 10));
      path.erase(path.begin());
    }
    path.insert(path.begin(), {kInstancesName, std::to_string(row < rows.size() ? rows[row] : row)});
  }
  error.message = message_of(error.problems, error.more);
  return error;
}

PredictError too_many_requests(size_t in_progress) {
  PredictError error;
  error.status = 429;
  error.code = "TOO_MANY_REQUESTS";
  error.message = std::to_string(in_progress) + " requests are in progress, as many as are allowed; try again later";
  error.is_temporary = true;
  return error;
}

PredictError too_late(std::string_view model, int64_t timeout_ns) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", static_cast<double>(timeout_ns) / kSecond_ns);
  PredictError error;
  error.status = 504;
  error.code = "DEADLINE_EXCEEDED";
  error.message = "model '" + std::string(model) + "' did not answer within " + seconds +
                  " s; the server may still be working on it";
  return error;
}

}  // namespace pytriton::http
