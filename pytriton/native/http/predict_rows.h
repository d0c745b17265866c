// The JSON of /predict: from a body to rows, and from rows to requests.
#pragma once

#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "inference.h"
#include "predict_fields.h"

namespace pytriton::http {

// Memory that grows.
class Bytes {
 public:
  void append(const void* data, size_t size);
  template <typename Number>
  void append(Number number) {
    if (capacity_ - size_ < sizeof number) grow(sizeof number);
    std::memcpy(memory_.get() + size_, &number, sizeof number);
    size_ += sizeof number;
  }
  const char* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  Memory take() { return memory_ ? std::move(memory_) : allocate(0); }

 private:
  void grow(size_t more);

  Memory memory_;
  size_t size_ = 0, capacity_ = 0;
};

// The tensors of a request with one row; optional inputs may be missing.
struct Row {
  struct Value {
    const Field* field;
    std::vector<int64_t> shape;  // without the batch axis
    Bytes data;
  };
  std::vector<Value> values;  // in the order of the fields
};

struct Question {
  std::vector<Row> rows;
  bool is_batch = false;  // the client sent a list of them
};

// Rows that are one request to the model.
struct Group {
  std::vector<size_t> rows;  // their indices
};

constexpr size_t kMostGroups = 64;  // requests to the model at the same time

// Reads a body, which is followed by kPadding readable bytes. Nothing if it has a mistake, or something that is read by
// the application alone: whatever is not certain is left to it, so that there is one place that judges requests.
std::optional<Question> read_question(const Fields& fields, std::string_view body);

// Puts rows with the same inputs of the same shapes together. Nothing if they are more than kMostGroups.
std::optional<std::vector<Group>> group_rows(const Fields& fields, const Question& question);

// Makes the inputs of a request of rows, whose data it takes.
void add_inputs(InferenceRequest& request, Question& question, const Group& group, bool has_batch_axis);

}  // namespace pytriton::http
