#include "predict_answer.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "../json.h"
#include "predict_elements.h"
#include "predict_numbers.h"

namespace pytriton::http {

namespace {

constexpr size_t kLongestShown = 60;  // characters of a value in an error

[[noreturn]] void fail_output(const Field& field, std::string_view expected, std::string_view got) {
  std::string message = "an output is not what its model says: [";
  append_text(message, field.name);
  throw Failure(Code::internal, message.append("]: expected ").append(expected).append(", got ").append(got));
}

// As Python shows bytes, up to a length.
std::string shown(std::string_view bytes) {
  const bool has_quote = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = has_quote ? '"' : '\'';
  std::string text = std::string("b") + quote;
  for (const char each : bytes) {
    if (text.size() >= kLongestShown) break;
    const auto byte = static_cast<unsigned char>(each);
    if (each == quote || each == '\\') {
      text.append({'\\', each});
    } else if (each == '\t' || each == '\n' || each == '\r') {
      text.append({'\\', each == '\t' ? 't' : each == '\n' ? 'n' : 'r'});
    } else if (byte < 0x20 || byte >= 0x7F) {
      constexpr const char* kDigits = "0123456789abcdef";
      text.append({'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 0xFU]});
    } else {
      text += each;
    }
  }
  return (text += quote).substr(0, kLongestShown);
}

void append_base64(std::string& json, std::string_view bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  json += '"';
  for (size_t start = 0; start < bytes.size(); start += 3) {
    const size_t count = std::min<size_t>(bytes.size() - start, 3);
    uint32_t bits = 0;
    for (size_t index = 0; index < 3; ++index)
      bits = bits << 8U | (index < count ? static_cast<unsigned char>(bytes[start + index]) : 0U);
    for (size_t index = 0; index < 4; ++index) json += index <= count ? kDigits[bits >> (18 - 6 * index) & 0x3FU] : '=';
  }
  json += '"';
}

// With the strings that stand for NaN and infinities, which Python's json module writes without quotes.
std::string with_special_numbers(std::string_view text) {
  std::string json;
  bool is_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char each = text[at];
    if (is_string && each == '\\' && at + 1 < text.size()) {
      json.append(text.substr(at++, 2));
      continue;
    }
    if (each == '"') is_string = !is_string;
    bool is_special = false;
    if (!is_string) {
      for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
        if (text.substr(at, name.size()) != name) continue;
        json.append(1, '"').append(name).append(1, '"');
        at += name.size() - 1;
        is_special = true;
        break;
      }
    }
    if (!is_special) json += each;
  }
  return json;
}

bool is_json(std::string_view text) {
  simdjson::dom::parser parser;
  const auto error = parser.parse(text.data(), text.size()).error();
  // Both are JSON, and readers may do with them what they can.
  return !error || error == simdjson::BIGINT_ERROR || error == simdjson::DEPTH_ERROR;
}

void append_member(std::string& json, const Field& field, std::string_view text) {
  if (is_json(text)) {
    json += text;
    return;
  }
  const std::string corrected = with_special_numbers(text);
  if (!is_json(corrected)) fail_output(field, "JSON", shown(text));
  json += corrected;
}

void append_string(std::string& json, const Field& field, std::string_view text) {
  switch (field.content) {
    case Field::Content::base64:
      return append_base64(json, text);
    case Field::Content::text:
      if (!simdjson::validate_utf8(text.data(), text.size())) fail_output(field, "text in UTF-8", shown(text));
      return append_text(json, text);
    default:
      if (simdjson::validate_utf8(text.data(), text.size())) return append_text(json, text);
      json += "{\"b64\":";
      append_base64(json, text);
      json += '}';
  }
}

// One output of a response, row by row.
class OutputWriter {
 public:
  OutputWriter(const Field& field, const Output& output, bool has_batch_axis, size_t rows)
      : field_(field), shape_(output.shape, output.shape + output.rank), rest_(output.data, output.size) {
    if (output.dtype != field.dtype) throw Failure(Code::internal, "output '" + field.name + "' has another dtype");
    if (has_batch_axis) {
      if (shape_.empty() || shape_[0] != static_cast<int64_t>(rows)) fail_shape(rows);
      shape_.erase(shape_.begin());
    }
    for (const int64_t extent : shape_) {
      if (extent < 0 || __builtin_mul_overflow(count_, static_cast<uint64_t>(extent), &count_))
        throw Failure(Code::internal, "output '" + field.name + "' has an impossible shape");
    }
    if (const size_t item = bytes_of(field.dtype);
        item && (count_ > rest_.size() / item || rows * count_ * item != rest_.size()))
      throw Failure(Code::internal, "output '" + field.name + "' does not have the size of its shape");
  }

  const Field& field() const { return field_; }

  // Appends the value of the next row; false for null.
  bool append(std::string& json) {
    if (bytes_of(field_.dtype)) {
      append_numbers(json);
      return true;
    }
    if (field_.form == Field::Form::json) {
      need_one();
      const std::string_view text = next_string();
      if (text == "null") return false;
      append_member(json, field_, text);
    } else if (field_.form == Field::Form::value) {
      need_one();
      append_string(json, field_, next_string());
    } else {
      const auto write = [&](uint64_t count) {
        for (uint64_t index = 0; index < count; ++index) {
          if (index) json += ',';
          append_string(json, field_, next_string());
        }
      };
      if (field_.form == Field::Form::list) {
        json += '[';
        write(count_);
        json += ']';
      } else {
        append_lists(json, 0, write);
      }
    }
    return true;
  }

 private:
  [[noreturn]] void fail_shape(size_t rows) const {
    std::string shape;
    for (const int64_t extent : shape_) shape.append(shape.empty() ? "" : ", ").append(std::to_string(extent));
    if (shape_.size() == 1) shape += ',';
    throw Failure(Code::internal,
                  "output '" + field_.name + "' has shape (" + shape + ") for " + std::to_string(rows) + " rows");
  }

  void need_one() const {
    if (!count_) throw Failure(Code::internal, "output '" + field_.name + "' has no value");
  }

  std::string_view next_string() {
    uint32_t length = 0;
    if (rest_.size() >= kLengthBytes) std::memcpy(&length, rest_.data(), kLengthBytes);
    if (rest_.size() < kLengthBytes || rest_.size() - kLengthBytes < length)
      throw Failure(Code::internal, "output '" + field_.name + "' is incomplete");
    const std::string_view text = rest_.substr(kLengthBytes, length);
    rest_.remove_prefix(kLengthBytes + length);
    return text;
  }

  // Nested lists, whose innermost elements `write` appends.
  template <typename Write>
  void append_lists(std::string& json, size_t axis, const Write& write) const {
    if (axis == shape_.size()) return write(1);
    json += '[';
    if (axis + 1 == shape_.size()) {
      write(static_cast<uint64_t>(shape_[axis]));
    } else {
      for (int64_t index = 0; index < shape_[axis]; ++index) {
        if (index) json += ',';
        append_lists(json, axis + 1, write);
      }
    }
    json += ']';
  }

  void append_numbers(std::string& json) {
    switch (field_.dtype) {
      case dtype::kBool:
        return append_row<bool>(json, [](const char* at) { return *at != 0; });
      case dtype::kUint8:
        return append_integers<uint8_t>(json);
      case dtype::kUint16:
        return append_integers<uint16_t>(json);
      case dtype::kUint32:
        return append_integers<uint32_t>(json);
      case dtype::kUint64:
        return append_integers<uint64_t>(json);
      case dtype::kInt8:
        return append_integers<int8_t>(json);
      case dtype::kInt16:
        return append_integers<int16_t>(json);
      case dtype::kInt32:
        return append_integers<int32_t>(json);
      case dtype::kInt64:
        return append_integers<int64_t>(json);
      case dtype::kFp16:
        return append_floats<uint16_t>(json, [](uint16_t half) { return static_cast<float>(number_of_half(half)); });
      case dtype::kFp32:
        return append_floats<float>(json, [](float number) { return number; });
      default:
        return append_floats<double>(json, [](double number) { return number; });
    }
  }

  template <typename Stored>
  static Stored stored_at(const char* at) {
    Stored stored;
    std::memcpy(&stored, at, sizeof stored);
    return stored;
  }

  template <typename Item>
  void append_integers(std::string& json) {
    append_row<Item>(json, stored_at<Item>);
  }

  // Single numbers, and arrays with a number that is not finite, are written as Python's floats are, which have 64
  // bits.
  template <typename Stored, typename Load>
  void append_floats(std::string& json, const Load& load) {
    bool is_wide = is_one_number();
    for (uint64_t index = 0; !is_wide && index < count_; ++index)
      is_wide = !std::isfinite(load(stored_at<Stored>(rest_.data() + index * sizeof(Stored))));
    if (is_wide)
      return append_row<Stored>(json, [&](const char* at) { return static_cast<double>(load(stored_at<Stored>(at))); });
    append_row<Stored>(json, [&](const char* at) { return load(stored_at<Stored>(at)); });
  }

  bool is_one_number() const { return field_.form == Field::Form::value || field_.is_scalar; }

  template <typename Stored, typename Load>
  void append_row(std::string& json, const Load& load) {
    const char* at = rest_.data();
    rest_.remove_prefix(count_ * sizeof(Stored));
    if (is_one_number()) {
      need_one();
      char text[kLongestNumber];
      json.append(text, static_cast<size_t>(print_number(text, load(at)) - text));
      return;
    }
    append_lists(json, 0, [&](uint64_t count) {
      char block[4096];
      char* end = block;
      for (uint64_t index = 0; index < count; ++index, at += sizeof(Stored)) {
        if (index) *end++ = ',';
        end = print_number(end, load(at));
        if (block + sizeof block - end < static_cast<ptrdiff_t>(kLongestNumber + 1)) {
          json.append(block, static_cast<size_t>(end - block));
          end = block;
        }
      }
      json.append(block, static_cast<size_t>(end - block));
    });
  }

  const Field& field_;
  std::vector<int64_t> shape_;  // of a row
  uint64_t count_ = 1;          // of elements of a row
  std::string_view rest_;       // of the rows that follow
};

std::vector<OutputWriter> writers_of(const Fields& fields, const ModelResponse& response, size_t rows) {
  std::vector<std::optional<Output>> found(fields.outputs.size());
  const uint32_t count = response.output_count();
  for (uint32_t index = 0; index < count; ++index) {
    const Output output = response.output(index);
    for (size_t field = 0; field < found.size(); ++field)
      if (fields.outputs[field].name == output.name) found[field] = output;
  }
  std::vector<OutputWriter> writers;
  for (size_t field = 0; field < found.size(); ++field)
    if (found[field])
      writers.emplace_back(fields.outputs[field], *found[field], fields.model->max_batch_size > 0, rows);
  return writers;
}

}  // namespace

void append_text(std::string& json, std::string_view text) {
  constexpr const char* kDigits = "0123456789abcdef";
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    std::string valid;
    for (const char each : text) valid += (each & 0x80) ? std::string("\xEF\xBF\xBD") : std::string(1, each);
    return append_text(json, valid);
  }
  json += '"';
  size_t start = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto each = static_cast<unsigned char>(text[at]);
    if (each >= 0x20 && each != '"' && each != '\\') continue;
    json.append(text, start, at - start);
    start = at + 1;
    constexpr std::string_view kShort = "\b\f\n\r\t\"\\", kNames = "bfnrt\"\\";
    const size_t known = kShort.find(text[at]);
    if (known != std::string_view::npos) {
      json.append({'\\', kNames[known]});
    } else {
      json.append({'\\', 'u', '0', '0', kDigits[each >> 4U], kDigits[each & 0xFU]});
    }
  }
  json.append(text, start).append(1, '"');
}

std::vector<std::string> make_results(const Fields& fields, const ModelResponse& response, size_t rows) {
  std::vector<std::string> results(rows);
  auto writers = writers_of(fields, response, rows);
  for (std::string& json : results) {
    json = '{';
    for (OutputWriter& writer : writers) {
      const size_t before = json.size();
      if (before > 1) json += ',';
      append_text(json, writer.field().name);
      json += ':';
      if (writer.append(json)) continue;
      if (writer.field().is_present) {
        json += "null";
      } else {
        json.resize(before);
      }
    }
    json += '}';
  }
  return results;
}

}  // namespace pytriton::http
