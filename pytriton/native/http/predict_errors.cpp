#include "predict_errors.h"

#include <cmath>
#include <cstdio>

#include "../vendor/simdjson/simdjson.h"
#include "clock.h"
#include "predict_answer.h"

namespace pytriton::http {

namespace {

constexpr std::string_view kQueueFull = "maximum queue size", kExpired = "timeout expired";  // of the server's messages
constexpr std::string_view kInstancesName = "\"instances\"";

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

// The list that a text begins with, whose end is given; npos if there is none.
size_t end_of_list(std::string_view text) {
  bool is_string = false;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char each = text[at];
    if (is_string) {
      if (each == '\\') {
        ++at;
      } else if (each == '"') {
        is_string = false;
      }
    } else if (each == '"') {
      is_string = true;
    } else if (each == '[') {
      ++depth;
    } else if (each == ']' && !--depth) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

bool read_path(std::string_view list, Problem& problem) {
  simdjson::dom::parser parser;
  simdjson::dom::array path;
  if (parser.parse(list.data(), list.size()).get(path)) return false;
  bool is_first = true;
  for (const auto each : path) {
    std::string_view name;
    int64_t index = 0;
    std::string part;
    if (!each.get(name)) {
      append_text(part, name);
    } else if (!each.get(index)) {
      part = std::to_string(index);
      if (is_first) problem.first = part;
    } else {
      return false;
    }
    if (!problem.path.empty()) problem.path += ',';
    problem.path += part;
    is_first = false;
  }
  return true;
}

bool read_problem(std::string_view text, Problem& problem) {
  constexpr std::string_view kExpected = ": expected ", kGot = ", got ";
  const size_t end = text.empty() || text[0] != '[' ? std::string_view::npos : end_of_list(text);
  if (end == std::string_view::npos || !read_path(text.substr(0, end), problem)) return false;
  std::string_view rest = text.substr(end);
  if (rest.substr(0, kExpected.size()) != kExpected) return false;
  rest.remove_prefix(kExpected.size());
  const size_t got = rest.rfind(kGot);
  if (got == std::string_view::npos) return false;
  problem.expected = rest.substr(0, got);
  problem.got = rest.substr(got + kGot.size());
  return true;
}

// The problems that a worker's message tells (pytriton/signature/validation.py); none of another text.
std::vector<Problem> problems_in(std::string_view text) {
  std::vector<Problem> problems;
  while (true) {
    const size_t end = text.find("; [");
    if (!read_problem(text.substr(0, end), problems.emplace_back())) return {};
    if (end == std::string_view::npos) return problems;
    text.remove_prefix(end + 2);
  }
}

// As Python's json module writes the path: a space follows each comma that is not in a text.
std::string described(const Problem& problem) {
  std::string text = "[";
  bool is_string = false;
  for (size_t at = 0; at < problem.path.size(); ++at) {
    const char each = problem.path[at];
    text += each;
    if (is_string && each == '\\') {
      text += problem.path[++at];
    } else if (each == '"') {
      is_string = !is_string;
    } else if (!is_string && each == ',') {
      text += ' ';
    }
  }
  return text + "]: expected " + problem.expected + ", got " + problem.got;
}

}  // namespace

std::string PredictError::json() const {
  std::string text = "{\"error\":{\"code\":\"" + code + "\",\"message\":";
  append_text(text, message);
  for (size_t index = 0; index < problems.size(); ++index) {
    const Problem& problem = problems[index];
    text += index ? ",{\"path\":[" : ",\"details\":[{\"path\":[";
    text += problem.path + "],\"expected\":";
    append_text(text, problem.expected);
    text += ",\"got\":";
    append_text(text, problem.got);
    text += '}';
  }
  return text + (problems.empty() ? "}}" : "]}}");
}

bool is_queue_full(const Failure& failure) {
  return failure.code == Code::unavailable && has(failure.what(), kQueueFull);
}

PredictError error_of(const Failure& failure) {
  PredictError error;
  error.message = failure.what();
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
  if (failure.code == Code::invalid_argument) error.problems = problems_in(error.message);
  if (!error.problems.empty()) {
    error.status = 422;
    error.code = "INVALID_INPUT";
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
  std::string message;
  for (Problem& problem : error.problems) {
    size_t row = 0;
    if (!problem.first.empty()) {
      row = static_cast<size_t>(std::strtoull(problem.first.c_str(), nullptr, 10));
      problem.path.erase(0, problem.first.size());
      if (!problem.path.empty()) problem.path.erase(0, 1);  // the comma
    }
    const std::string rest = problem.path.empty() ? "" : "," + problem.path;
    problem.path = std::string(kInstancesName) + "," + std::to_string(row < rows.size() ? rows[row] : row) + rest;
    message += (message.empty() ? "" : "; ") + described(problem);
  }
  error.message = message;
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
