#include "details.h"

#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include "../frames/handles.h"

namespace pytriton {

namespace {

double monotonic_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

int64_t since_epoch_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// One member of a JSON object; the value follows.
void begin(std::string& fields, std::string_view key) {
  if (!fields.empty()) fields += ',';
  append_json(fields, key);
  fields += ':';
}

std::string json_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  std::array<char, 40> text{};  // not by printf(), which writes the decimal point of the process's locale
  const std::string digits(text.data(), std::to_chars(text.begin(), text.end(), number).ptr);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string json_text(const char* text) {
  if (!is_utf8(text)) throw BadRequest(Code::invalid_argument, "parameters must be UTF-8: " + std::string(text));
  std::string quoted;
  append_json(quoted, text);
  return quoted;
}

void add_parameters(std::string& fields, TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  check(TRITONBACKEND_RequestParameterCount(request, &count));
  std::string parameters;
  for (uint32_t index = 0; index < count; ++index) {
    const char* key = nullptr;
    TRITONSERVER_ParameterType type{};
    const void* value = nullptr;
    check(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (type == TRITONSERVER_PARAMETER_BYTES) continue;
    if (!parameters.empty()) parameters += ',';
    parameters += json_text(key) + ":";
    switch (type) {
      case TRITONSERVER_PARAMETER_STRING:
        parameters += json_text(static_cast<const char*>(value));
        break;
      case TRITONSERVER_PARAMETER_INT:
        parameters += std::to_string(*static_cast<const int64_t*>(value));
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        parameters += *static_cast<const bool*>(value) ? "true" : "false";
        break;
      default:
        parameters += json_number(*static_cast<const double*>(value));
    }
  }
  if (parameters.empty()) return;
  begin(fields, "parameters");
  fields += "{" + parameters + "}";
}

bool add_outputs(std::string& fields, TRITONBACKEND_Request* request, size_t outputs) {
  if (outputs < 2) return false;
  uint32_t count = 0;
  check(TRITONBACKEND_RequestOutputCount(request, &count));
  if (count == outputs) return false;
  begin(fields, "outputs");
  fields += '[';
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(request, index, &name));
    if (index) fields += ',';
    append_json(fields, name);
  }
  fields += ']';
  return true;
}

void add_id(std::string& fields, TRITONBACKEND_Request* request) {
  const char* id = nullptr;
  check(TRITONBACKEND_RequestId(request, &id));
  if (!id || !*id || !is_utf8(id)) return;  // the server sends any bytes back to the client; but here it is text
  begin(fields, "id");
  append_json(fields, id);
}

void add_sequence(std::string& fields, TRITONBACKEND_Request* request) {
  uint64_t number = 0;
  const char* text = nullptr;
  std::string id;
  if (ignore(TRITONBACKEND_RequestCorrelationId(request, &number))) {
    if (number) id = std::to_string(number);
  } else if (ignore(TRITONBACKEND_RequestCorrelationIdString(request, &text)) && text && *text) {
    id = json_text(text);
  }
  if (id.empty()) return;
  uint32_t flags = 0;
  check(TRITONBACKEND_RequestFlags(request, &flags));
  begin(fields, "sequence");
  fields += "[" + id + "," + std::to_string(flags) + "]";
}

void add_deadline(std::string& fields, TRITONBACKEND_Request* request) {
  uint64_t timeout_us = 0;
  check(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
  if (!timeout_us) return;
  begin(fields, "deadline");
  fields += json_number(monotonic_s() + static_cast<double>(timeout_us) / 1e6);
}

bool add_trace(std::string& fields, TRITONBACKEND_Request* request, const char* reason) {
  TRITONSERVER_InferenceTrace* trace = nullptr;
  const char* context = nullptr;
  if (!ignore(TRITONBACKEND_RequestTrace(request, &trace)) || !trace) return false;
  if (!ignore(TRITONSERVER_InferenceTraceContext(trace, &context)) || !context || !*context) return false;
  begin(fields, "trace");
  fields += std::string("{\"context\":") + context + ",\"since_ns\":" + std::to_string(since_epoch_ns());
  if (reason) fields += std::string(R"(,"reason":")") + reason + '"';
  fields += '}';
  return true;
}

}  // namespace

Details details_of(TRITONBACKEND_Request* request, const Model& model, const char* reason) {
  Details details;
  std::string& fields = details.fields;
  add_parameters(fields, request);
  details.apart = add_outputs(fields, request, model.outputs.size());
  add_id(fields, request);
  add_sequence(fields, request);
  add_deadline(fields, request);
  if (model.traced) details.apart |= add_trace(fields, request, reason);
  return details;
}

void add_details(std::string& metadata, size_t number, const Details& details) {
  if (details.fields.empty()) return;
  metadata += metadata.empty() ? '{' : ',';
  metadata += '"' + std::to_string(number) + "\":{" + details.fields + '}';
}

}  // namespace pytriton
