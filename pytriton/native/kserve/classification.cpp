// The highest values of an output, with their indices and labels: what "classification" asks for.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "dtypes.h"
#include "infer_answer.h"

namespace pytriton::http {

namespace {

template <typename Number>
Number value_at(const char* data, uint64_t index) {
  Number number;
  std::memcpy(&number, data + index * sizeof number, sizeof number);
  return number;
}

// NaN is higher than everything, so that there is an order; Triton shows it first, too.
template <typename Number>
bool is_higher(Number one, Number other) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::isnan(one) || std::isnan(other)) return std::isnan(one) && !std::isnan(other);
  }
  return one > other;
}

template <typename Number>
std::string shown(Number number) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::isnan(number)) return "nan";  // without a sign
  }
  return std::to_string(number);
}

struct Row {
  const ModelResponse& response;
  uint32_t output;
  const char* data;
  uint64_t elements, classes;
};

template <typename Number>
void append_row(std::string& found, const Row& row) {
  std::vector<uint64_t> order(row.elements);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(row.classes), order.end(),
                    [&](uint64_t one, uint64_t other) {
                      const auto first = value_at<Number>(row.data, one), second = value_at<Number>(row.data, other);
                      return is_higher(first, second) || (!is_higher(second, first) && one < other);
                    });
  for (uint64_t rank = 0; rank < row.classes; ++rank) {
    const uint64_t index = order[rank];
    std::string text = shown(value_at<Number>(row.data, index)) + ":" + std::to_string(index);
    if (const std::string_view label = row.response.label(row.output, index); !label.empty())
      text.append(":").append(label);
    const auto length = static_cast<uint32_t>(text.size());
    found.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
}

}  // namespace

std::string classify(const ModelResponse& response, uint32_t index, const Output& output, uint32_t classes,
                     bool has_batch_axis, std::vector<int64_t>& shape) {
  const size_t item_size = bytes_of(output.dtype);
  const uint64_t all = item_size ? output.size / item_size : 0;
  const uint64_t rows = has_batch_axis && output.rank ? static_cast<uint64_t>(output.shape[0]) : 1;
  const uint64_t elements = rows ? all / rows : 0;
  Row row{response, index, output.data, elements, std::min<uint64_t>(classes, elements)};
  shape.clear();
  if (has_batch_axis) shape.push_back(static_cast<int64_t>(rows));
  shape.push_back(static_cast<int64_t>(row.classes));
  std::string found;
  const auto append = [&](auto item) {
    for (uint64_t at = 0; at < rows; ++at) {
      append_row<decltype(item)>(found, row);
      row.data += elements * sizeof item;
    }
  };
  const bool has_order = output.dtype != dtype::kBool && visit_dtype(output.dtype, append);
  if (!has_order) {
    throw Failure(Code::invalid_argument,
                  std::string("class result not available for output due to unsupported type '") +
                      TRITONSERVER_DataTypeString(output.dtype) + "'");
  }
  return found;
}

}  // namespace pytriton::http
