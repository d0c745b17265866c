#include "results.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "../frames/json.h"
#include "../kserve/json_elements.h"

namespace pytriton::http {

namespace {

// One output of a response, row by row.
class OutputWriter {
 public:
  OutputWriter(const Field& field, const Output& output, bool has_batch_axis, size_t rows)
      : field_(field), shape_(output.shape, output.shape + output.rank), rest_(output.data, output.size) {
    if (output.dtype != field.dtype) fail("has another dtype");
    if (has_batch_axis) {
      if (shape_.empty() || shape_[0] != static_cast<int64_t>(rows)) fail_shape(rows);
      shape_.erase(shape_.begin());
    }
    for (const int64_t extent : shape_) {
      if (extent < 0 || __builtin_mul_overflow(count_, static_cast<uint64_t>(extent), &count_))
        fail("has an impossible shape");
    }
    if (const size_t item = bytes_of(field.dtype);
        item && (count_ > rest_.size() / item || rows * count_ * item != rest_.size()))
      fail("does not have the size of its shape");
  }

  const Field& field() const { return field_; }

  // Appends the value of the next row.
  void append(std::string& json) {
    if (field_.form == Field::Form::value || (field_.is_scalar && field_.dtype != dtype::kBytes)) {
      if (!count_) fail("has no value");
      return append_elements(json, 1);
    }
    const bool is_wide = field_.dtype == dtype::kFp32 && !is_finite();
    append_lists(json, 0, is_wide);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Failure(Code::internal, "output '" + field_.name + "' " + reason);
  }

  [[noreturn]] void fail_shape(size_t rows) const {
    std::string shape;
    for (const int64_t extent : shape_) shape.append(shape.empty() ? "" : ", ").append(std::to_string(extent));
    if (shape_.size() == 1) shape += ',';
    fail("has shape (" + shape + ") for " + std::to_string(rows) + " rows");
  }

  std::string_view next_string() {
    uint32_t length = 0;
    if (rest_.size() >= kLengthBytes) std::memcpy(&length, rest_.data(), kLengthBytes);
    if (rest_.size() < kLengthBytes || rest_.size() - kLengthBytes < length) fail("is incomplete");
    const std::string_view text = rest_.substr(kLengthBytes, length);
    rest_.remove_prefix(kLengthBytes + length);
    return text;
  }

  void append_string(std::string& json, std::string_view text) const {
    if (is_utf8(text)) return append_json(json, text);
    if (field_.is_text) fail("has a text that is not UTF-8");
    json += R"({"b64":")";
    append_base64(json, text);
    json += "\"}";
  }

  // Single numbers, and arrays with a number that is not finite, are written as Python's floats are, which have 64
  // bits.
  void append_elements(std::string& json, uint64_t count, bool is_wide = true) {
    const size_t size = count * bytes_of(field_.dtype);
    if (!size) {
      for (uint64_t index = 0; field_.dtype == dtype::kBytes && index < count; ++index) {
        if (index) json += ',';
        append_string(json, next_string());
      }
    } else if (is_wide && field_.dtype == dtype::kFp32) {
      std::vector<double> numbers(count);
      for (uint64_t index = 0; index < count; ++index) numbers[index] = float_at(index);
      append_numbers(json, dtype::kFp64, reinterpret_cast<const char*>(numbers.data()), count, NonFinite::quoted);
    } else {
      append_numbers(json, field_.dtype, rest_.data(), count, NonFinite::quoted);
    }
    rest_.remove_prefix(size);
  }

  // Nested lists.
  void append_lists(std::string& json, size_t axis, bool is_wide) {
    if (axis == shape_.size()) return append_elements(json, 1, is_wide);
    json += '[';
    if (axis + 1 == shape_.size()) {
      append_elements(json, static_cast<uint64_t>(shape_[axis]), is_wide);
    } else {
      for (int64_t index = 0; index < shape_[axis]; ++index) {
        if (index) json += ',';
        append_lists(json, axis + 1, is_wide);
      }
    }
    json += ']';
  }

  float float_at(uint64_t index) const {
    float number = 0;
    std::memcpy(&number, rest_.data() + index * sizeof number, sizeof number);
    return number;
  }

  bool is_finite() const {
    for (uint64_t index = 0; index < count_; ++index)
      if (!std::isfinite(float_at(index))) return false;
    return true;
  }

  const Field& field_;
  std::vector<int64_t> shape_;  // of a row
  uint64_t count_ = 1;          // of elements of a row
  std::string_view rest_;       // of the rows that follow
};

std::vector<OutputWriter> writers_of(const Signature& signature, const ModelResponse& response, size_t rows) {
  std::vector<std::optional<Output>> found(signature.outputs.size());
  const uint32_t count = response.output_count();
  for (uint32_t index = 0; index < count; ++index) {
    const Output output = response.output(index);
    for (size_t field = 0; field < found.size(); ++field)
      if (signature.outputs[field].name == output.name) found[field] = output;
  }
  std::vector<OutputWriter> writers;
  for (size_t field = 0; field < found.size(); ++field)
    if (found[field])
      writers.emplace_back(signature.outputs[field], *found[field], signature.model->max_batch_size > 0, rows);
  return writers;
}

}  // namespace

std::vector<std::string> make_results(const Signature& signature, const ModelResponse& response, size_t rows) {
  std::vector<std::string> results(rows);
  auto writers = writers_of(signature, response, rows);
  for (std::string& json : results) {
    json = '{';
    for (OutputWriter& writer : writers) {
      if (json.size() > 1) json += ',';
      append_json(json, writer.field().name);
      json += ':';
      writer.append(json);
    }
    json += '}';
  }
  return results;
}

}  // namespace pytriton::http
