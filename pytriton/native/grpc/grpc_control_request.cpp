#include "grpc_control_request.h"

#include <algorithm>
#include <iterator>

#include "../frames/json.h"
#include "proto.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostEntries = 1024;

// An entry of a map: its key, and its value's bytes.
struct Entry {
  std::string key;
  std::string_view value;
};

Entry read_entry(std::string_view text) {
  Entry entry;
  ProtoReader reader(text);
  while (const unsigned field = reader.next()) {
    if (field == 1) {
      entry.key = reader.text();
    } else if (field == 2) {
      entry.value = reader.bytes();
    } else {
      reader.skip();
    }
  }
  return entry;
}

// Reads a message: `read` is called with the number of each field that is no entry of the map, and has to read it.
template <typename Read>
std::vector<Entry> read_with_map(std::string_view message, unsigned map, const Read& read) {
  std::vector<Entry> entries;
  ProtoReader reader(message);
  while (const unsigned field = reader.next()) {
    if (field != map) {
      read(field, reader);
    } else {
      entries.push_back(read_entry(reader.bytes()));
      if (entries.size() > kMostEntries)
        refuse("the request has more than " + std::to_string(kMostEntries) + " entries");
    }
  }
  return entries;
}

// The bytes of a value in that field; refused if it is of another kind.
std::string_view bytes_in(std::string_view value, unsigned wanted, const std::string& refusal) {
  std::string_view bytes;
  unsigned last = 0;
  ProtoReader reader(value);
  while (const unsigned field = reader.next()) {
    last = field;
    if (field == wanted) {
      bytes = reader.bytes();
    } else {
      reader.skip();
    }
  }
  if (last != wanted) refuse(refusal);
  return bytes;
}

void append_text(std::string& json, std::string_view text) {
  if (!is_utf8(text)) refuse("a text of the request is not UTF-8");
  append_json(json, text);
}

// The value of a setting of traces: texts.
void append_trace_value(std::string& json, const Entry& entry) {
  std::vector<std::string> texts;
  ProtoReader reader(entry.value);
  while (const unsigned field = reader.next()) {
    if (field != 1) {
      reader.skip();
      continue;
    }
    texts.push_back(reader.text());
    if (texts.size() > kMostEntries) refuse("a setting has too many values");
  }
  if (texts.empty()) {
    json += "null";
  } else if (entry.key == "trace_level") {
    for (const std::string& each : texts) {
      json += &each == &texts.front() ? '[' : ',';
      append_text(json, each);
    }
    json += ']';
  } else if (texts.size() > 1) {
    refuse("expect only 1 value for '" + entry.key + "'");
  } else {
    append_text(json, texts.front());
  }
}

struct LogSetting {
  std::string_view name;
  unsigned field;  // of its value
  const char* kind;
};
constexpr LogSetting kLogSettings[] = {{"log_file", 3, "string"}, {"log_format", 3, "string"},
                                       {"log_info", 1, "bool"},   {"log_warning", 1, "bool"},
                                       {"log_error", 1, "bool"},  {"log_verbose_level", 2, "uint32"}};

// Of the log: a flag, a number or a text.
void append_log_value(std::string& json, const Entry& entry) {
  const auto* const setting = std::find_if(std::begin(kLogSettings), std::end(kLogSettings),
                                           [&](const LogSetting& each) { return each.name == entry.key; });
  std::string value = "null";
  ProtoReader reader(entry.value);
  while (const unsigned field = reader.next()) {
    if (setting != std::end(kLogSettings) && field != setting->field)
      refuse(std::string("expect ") + setting->kind + " for '" + entry.key + "'");
    switch (field) {
      case 1:
        value = reader.varint() ? "true" : "false";
        break;
      case 2:
        value = std::to_string(static_cast<uint32_t>(reader.varint()));
        break;
      case 3:
        value.clear();
        append_text(value, reader.text());
        break;
      default:
        reader.skip();
    }
  }
  json += value;
}

}  // namespace

ModelControl read_model_control(std::string_view message, Action action) {
  ModelControl control;
  const auto entries = read_with_map(message, 3, [&](unsigned field, ProtoReader& reader) {
    if (field == 1) {
      if (!reader.bytes().empty()) throw Failure(Code::unsupported, "'repository_name' specification is not supported");
    } else if (field == 2) {
      control.model = reader.text();
    } else {
      reader.skip();
    }
  });
  for (const Entry& entry : entries) {
    const std::string expected = "invalid value type for load parameter '" + entry.key + "', expected ";
    if (action == Action::unload) {
      if (entry.key != "unload_dependents") continue;
      ProtoReader reader(entry.value);
      if (!reader.at_end() && reader.next() != 1)
        refuse("invalid value type for 'unload_dependents' parameter: expected bool_param.");
      control.with_dependents = !reader.at_end() && reader.varint() != 0;
    } else if (entry.key == "config") {
      ProtoReader reader(entry.value);
      control.has_config = true;
      control.config = bytes_in(entry.value, 3, expected + "string_param.");
      if (control.config.find('\0') != std::string::npos) refuse("a text of the request has a NUL character");
    } else if (entry.key.rfind("file:", 0) == 0) {
      control.files.push_back({entry.key, bytes_in(entry.value, 4, expected + "bytes_param.")});
    } else {
      refuse("unrecognized load parameter '" + entry.key + "' with request for model '" + control.model + "'");
    }
  }
  return control;
}

MemoryRequest read_memory_request(std::string_view message, const V2Path& path) {
  MemoryRequest request;
  Registration& registration = request.registration;
  const bool is_new = path.action == Action::memory_register;
  if (is_new) {  // what is absent has its default
    (path.is_cuda ? registration.handle : registration.key).emplace();
    (path.is_cuda ? registration.device : registration.offset).emplace();
    registration.size.emplace();
  }
  ProtoReader reader(message);
  while (const unsigned field = reader.next()) {
    if (field == 1) {
      request.name = reader.text();
    } else if (is_new && field == 2 && path.is_cuda) {
      append_base64(registration.handle.emplace(), reader.bytes());
    } else if (is_new && field == 2) {
      registration.key = reader.text();
      if (!is_utf8(*registration.key)) refuse("a text of the request is not UTF-8");
    } else if (is_new && field == 3) {
      (path.is_cuda ? registration.device : registration.offset) = reader.varint();
    } else if (is_new && field == 4) {
      registration.size = reader.varint();
    } else {
      reader.skip();
    }
  }
  return request;
}

SettingsRequest read_settings(std::string_view message, Action action) {
  SettingsRequest request;
  const auto entries = read_with_map(message, 1, [&](unsigned field, ProtoReader& reader) {
    if (field == 2 && action == Action::trace) {
      request.model = reader.text();
    } else {
      reader.skip();
    }
  });
  for (const Entry& entry : entries) {
    request.json += request.json.empty() ? "{" : ",";
    append_text(request.json, entry.key);
    request.json += ':';
    action == Action::trace ? append_trace_value(request.json, entry) : append_log_value(request.json, entry);
  }
  if (!request.json.empty()) request.json += '}';
  return request;
}

}  // namespace pytriton::http
