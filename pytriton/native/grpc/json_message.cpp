#include "json_message.h"

#include <charconv>
#include <cstdint>

#include "../kserve/json_elements.h"
#include "proto.h"

namespace pytriton::http {

namespace {

using simdjson::ondemand::json_type;
using Kind = MessageField::Kind;

constexpr unsigned kUnknownLevels = 32;  // of a member that no table has

// A number, which may be a text: protocol buffers write those of 64 bits so, NaN and infinities.
template <typename Number>
Number number_of(std::string_view text) {
  Number number{};
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

uint64_t read_integer(JsonValue value) {
  if (checked(value.type()) == json_type::string) {
    const std::string_view text = checked(value.get_string());
    return text.substr(0, 1) == "-" ? static_cast<uint64_t>(number_of<int64_t>(text)) : number_of<uint64_t>(text);
  }
  int64_t number = 0;
  if (!value.get_int64().get(number)) return static_cast<uint64_t>(number);
  return checked(value.get_uint64());
}

double read_real(JsonValue value) {
  if (checked(value.type()) == json_type::string) return number_of<double>(checked(value.get_string()));
  return checked(value.get_double());
}

void append_object(std::string& to, simdjson::ondemand::object object, const MessageField* fields);

void append_message(std::string& to, unsigned number, JsonValue value, const MessageField* fields) {
  std::string message;
  append_object(message, checked(value.get_object()), fields);
  ProtoWriter(to).bytes(number, message);
}

void append_map(std::string& to, const MessageField& field, JsonValue value) {
  for (auto each : checked(value.get_object())) {
    auto member = checked(std::move(each));
    const std::string_view key = checked(member.unescaped_key());
    std::string entry;
    ProtoWriter writer(entry);
    if (field.kind == Kind::numbered_map) {
      writer.varint(kEntryKey, number_of<uint64_t>(key));
    } else {
      writer.bytes(kEntryKey, key);
    }
    if (field.fields) {
      append_message(entry, kEntryValue, member.value(), field.fields);
    } else {
      writer.bytes(kEntryValue, checked(member.value().get_string()));
    }
    ProtoWriter(to).bytes(field.number, entry);
  }
}

void append_value(std::string& to, const MessageField& field, JsonValue value) {
  ProtoWriter writer(to);
  switch (field.kind) {
    case Kind::text:
      return writer.bytes(field.number, checked(value.get_string()));
    case Kind::flag:
      return writer.flag(field.number, checked(value.get_bool()));
    case Kind::integer:
      return writer.varint(field.number, read_integer(value));
    case Kind::real:
      return writer.real(field.number, static_cast<float>(read_real(value)));
    case Kind::number:
      return writer.number(field.number, read_real(value));
    case Kind::choice:
      return writer.varint(field.number, number_of_choice(checked(value.get_string())));
    case Kind::message:
      return append_message(to, field.number, value, field.fields);
    default:
      append_map(to, field, value);
  }
}

// The depth is that of the tables.
void append_object(std::string& to, simdjson::ondemand::object object, const MessageField* fields) {
  for (auto each : object) {
    auto member = checked(std::move(each));
    const std::string_view name = checked(member.unescaped_key());
    const MessageField* field = fields;
    while (field->name && name != field->name) ++field;
    JsonValue value = member.value();
    const json_type type = checked(value.type());
    if (!field->name || type == json_type::null) {
      skip(value, kUnknownLevels);
    } else if (type == json_type::array) {
      for (auto element : checked(value.get_array())) append_value(to, *field, checked<JsonValue>(element));
    } else {
      append_value(to, *field, value);
    }
  }
}

}  // namespace

void append_fields(std::string& to, std::string_view json, const MessageField* fields) {
  JsonParser parser;
  auto document = parser.parse(json);
  append_object(to, checked(document.get_object()), fields);
}

void append_messages(std::string& to, unsigned field, std::string_view json, const MessageField* fields) {
  JsonParser parser;
  auto document = parser.parse(json);
  if (checked(document.type()) != json_type::array) {
    std::string message;
    append_object(message, checked(document.get_object()), fields);
    return ProtoWriter(to).bytes(field, message);
  }
  for (auto each : checked(document.get_array())) append_message(to, field, checked<JsonValue>(each), fields);
}

}  // namespace pytriton::http
