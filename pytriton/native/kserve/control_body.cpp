#include "control_body.h"

#include "infer_request.h"
#include "json_elements.h"

namespace pytriton::http {

namespace {

using simdjson::ondemand::json_type;
using simdjson::ondemand::object;

constexpr unsigned kMostMembers = 1024;

// Counts the members of objects and the elements of lists.
class Members {
 public:
  void add() {
    if (++count_ > kMostMembers) {
      throw Failure(Code::invalid_argument,
                    "the request's JSON has more than " + std::to_string(kMostMembers) + " members");
    }
  }

 private:
  unsigned count_ = 0;
};

[[noreturn]] void fail_type(std::string_view name, const char* wanted) {
  throw Failure(Code::invalid_argument, "'" + std::string(name) + "' has to be " + wanted);
}

void check_flag(std::string_view name, JsonValue value) {
  bool flag = false;
  if (value.get_bool().get(flag)) fail_type(name, "a boolean");
}

// A parameter of a load, which is a text, or of an unload, which is a boolean.
void check_parameter(Action action, const std::string& name, JsonValue value) {
  if (name.find('\0') != std::string::npos) fail_type("the name of a parameter", "without a NUL character");
  if (action == Action::unload) {
    if (name == "unload_dependents") return check_flag(name, value);
    return skip(value, kControlLevels);
  }
  if (name != "config" && name.rfind("file:", 0) != 0) {
    throw Failure(Code::invalid_argument,
                  "a load has no parameter '" + name + "': it has 'config', and 'file:' with the name of a file");
  }
  read_text(value, name);
}

void check_model_control(Action action, object members) {
  Members count;
  bool has_parameters = false;
  for (auto each : members) {
    count.add();
    auto field = checked(std::move(each));
    if (checked(field.unescaped_key()) != "parameters") {
      skip(field.value(), kControlLevels);
      continue;
    }
    if (std::exchange(has_parameters, true)) fail_type("parameters", "there once");
    for (auto parameter : members_of(field.value())) {
      count.add();
      auto named = checked(std::move(parameter));
      const std::string name(checked(named.unescaped_key()));
      check_parameter(action, name, named.value());
    }
  }
}

// Settings of the log or of traces, or a region: texts, numbers, booleans, null, lists of texts, and what they ignore.
void check_settings(object members) {
  Members count;
  for (auto each : members) {
    count.add();
    auto field = checked(std::move(each));
    const std::string name(checked(field.unescaped_key()));
    JsonValue value = field.value();
    switch (checked(value.type())) {
      case json_type::string:
        read_text(value, name);
        break;
      case json_type::array:
        for (auto element : checked(value.get_array())) {
          count.add();
          read_text(checked<JsonValue>(element), name);
        }
        break;
      default:
        skip(value, kControlLevels);
    }
  }
}

}  // namespace

void check_control_body(Action action, std::string_view body) {
  const bool is_model_control = action == Action::load || action == Action::unload;
  if (body.empty() && (is_model_control || action == Action::memory_unregister)) return;
  if (action != Action::load && body.size() > kMostSettingsBytes)
    throw Failure(Code::invalid_argument,
                  "the request's body has more than " + std::to_string(kMostSettingsBytes) + " bytes");
  JsonParser parser;
  auto document = parser.parse(body);
  object members = members_of(document);
  is_model_control ? check_model_control(action, members) : check_settings(members);
  check_end(document);
}

}  // namespace pytriton::http
