// The JSON of /predict: from a body to rows, and from rows to requests.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "../kserve/inference.h"
#include "../kserve/json_elements.h"
#include "signature.h"

namespace pytriton::http {

// The tensors of a request with one row; optional inputs may be missing.
struct Row {
  struct Value {
    const Field* field;
    std::vector<int64_t> shape;  // without the batch axis
    Bytes data;
  };
  std::vector<Value> values;  // in the order of the fields
};

struct Rows {
  std::vector<Row> each;
  bool is_batch = false;  // the client sent a list of them
};

// Rows that are one request to the model.
struct Group {
  std::vector<size_t> rows;  // their indices
};

constexpr size_t kMostGroups = 64;  // requests to the model at the same time

// Reads a body, which is followed by kPadding readable bytes. Nothing if it has a mistake, or something that is read by
// the application alone: whatever is not certain is left to it, so that there is one place that judges requests.
std::optional<Rows> read_rows(const Signature& signature, std::string_view body);

// Puts rows with the same inputs of the same shapes together. Nothing if they are more than kMostGroups.
std::optional<std::vector<Group>> group_rows(const Signature& signature, const Rows& rows);

// Makes the inputs of a request of rows, whose data it takes.
void add_inputs(InferenceRequest& request, Rows& rows, const Group& group, bool has_batch_axis);

}  // namespace pytriton::http
