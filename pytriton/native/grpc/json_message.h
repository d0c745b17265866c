// The server's JSON as messages of protocol buffers, by tables of their fields.
#pragma once

#include <string>
#include <string_view>

namespace pytriton::http {

// A field of a message. A list of JSON is a repeated one; an object is a message, or a map with texts or numbers as
// keys. `fields`: of a message, or of a map's values; without them, those are texts. A table ends with an entry without
// a name.
struct MessageField {
  enum class Kind { text, flag, integer, real, number, choice, message, map, numbered_map };
  const char* name = nullptr;
  unsigned number = 0;
  Kind kind = Kind::text;
  const MessageField* fields = nullptr;
};

// Appends the fields of an object that the table has. The JSON is followed by kPadding readable bytes. Throws Failure.
void append_fields(std::string& to, std::string_view json, const MessageField* fields);

// Appends an object, or each one of a list, as a message in this field.
void append_messages(std::string& to, unsigned field, std::string_view json, const MessageField* fields);

// The number of an enumeration's name; 0 if it has none.
unsigned number_of_choice(std::string_view name);

// Of the server's answers.
extern const MessageField kServerMetadata[], kModelMetadata[], kModelConfig[], kStatistics[], kIndexEntry[];

}  // namespace pytriton::http
