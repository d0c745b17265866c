// The answer to a request to /v2/models/{model}/infer.
#pragma once

#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "inference.h"

namespace pytriton::http {

// How a request wants its outputs.
struct AnswerFormat {
  std::vector<RequestedOutput> outputs;  // those that it named
  bool is_binary = false;                // others
  bool has_batch_axis = false;           // of the model; only known if an output is to be classes
  std::string_view binary_type;          // as Target has it

  const RequestedOutput* find(std::string_view name) const;
};

// Takes the memory of large outputs from the response. Throws Failure: the model's, or if an output cannot be sent.
Response make_answer(const ModelResponse& response, const AnswerFormat& format);

// Writes an output where the request wants it. Throws Failure if there is too little room.
void write_to_region(const Output& output, const RegionPart& part);

// Appends the value of a parameter.
void append_value(std::string& json, const Parameter& parameter);

// The highest values of an output, as elements of BYTES: "value:index" or "value:index:label". Replaces `shape`. Throws
// Failure unless the dtype has an order.
std::string classify(const ModelResponse& response, uint32_t index, const Output& output, uint32_t classes,
                     bool has_batch_axis, std::vector<int64_t>& shape);

}  // namespace pytriton::http
