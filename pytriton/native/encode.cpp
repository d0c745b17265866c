#include "codec.h"
#include "details.h"
#include "layout.h"
#include "request.h"

namespace pytriton {

namespace {

using Column = std::vector<std::optional<Input>>;  // one input of all requests

std::vector<Column> columns_of(const std::vector<TRITONBACKEND_Request*>& requests, const Description& model) {
  std::vector<Column> columns(model.inputs.size(), Column(requests.size()));
  for (size_t request = 0; request < requests.size(); ++request) {
    std::vector<std::optional<Input>> inputs = inputs_of(requests[request], model.inputs);
    for (size_t name = 0; name < inputs.size(); ++name) columns[name][request] = inputs[name];
  }
  return columns;
}

bool fits_below(const Input& input, const Input& first) {
  return input.rank == first.rank && std::equal(input.shape + 1, input.shape + input.rank, first.shape + 1);
}

// Whether the batch can travel as one tensor per input: all requests have the same inputs, with equal trailing shapes,
// and all inputs of a request equally many rows. Fills in these.
bool have_common_rows(const std::vector<Column>& columns, std::vector<uint32_t>& rows) {
  for (const Column& column : columns) {
    const std::optional<Input>& first = column[0];
    std::vector<uint32_t> counts;
    for (const std::optional<Input>& input : column) {
      if (input.has_value() != first.has_value()) return false;
      if (!input) continue;
      if (input->rank == 0 || !fits_below(*input, *first) || input->shape[0] > INT32_MAX) return false;
      counts.push_back(static_cast<uint32_t>(input->shape[0]));
    }
    if (!first) continue;
    if (rows.empty()) {
      rows = std::move(counts);
    } else if (rows != counts) {
      return false;
    }
  }
  return !rows.empty();
}

// Appends the inputs to one tensor. BYTES change their form: the lengths of all, then the bytes of all.
void append_inputs(Tensor& tensor, const std::vector<const Input*>& inputs, Outgoing& frame) {
  if (tensor.dtype != kBytes) {
    for (const Input* input : inputs) append_parts(*input, tensor.parts);
  } else {
    std::string lengths, bytes;
    for (const Input* input : inputs) {
      std::vector<Part> parts;
      append_parts(*input, parts);
      std::string joined, some_lengths;
      if (parts.size() != 1) {
        for (const Part& part : parts) joined.append(static_cast<const char*>(part.at), part.size);
      }
      const std::string_view whole =
          parts.size() == 1 ? std::string_view(static_cast<const char*>(parts[0].at), parts[0].size) : joined;
      split_strings(whole, input->elements(), some_lengths, bytes);
      lengths += some_lengths;
    }
    for (std::string* each : {&lengths, &bytes}) {
      frame.encoded.push_back(std::move(*each));
      tensor.parts.push_back({frame.encoded.back().data(), frame.encoded.back().size()});
    }
  }
  tensor.size = 0;
  for (const Part& part : tensor.parts) tensor.size += part.size;
}

void add_whole_batch(const std::vector<Column>& columns, Outgoing& frame) {
  int64_t total = 0;
  for (const uint32_t rows : frame.rows) total += rows;
  for (size_t name = 0; name < columns.size(); ++name) {
    const std::optional<Input>& first = columns[name][0];
    if (!first) continue;
    Tensor tensor{
        static_cast<uint16_t>(name), kWholeBatch, first->dtype, {first->shape, first->shape + first->rank}, 0, {}};
    tensor.shape[0] = total;
    std::vector<const Input*> inputs;
    for (const std::optional<Input>& input : columns[name]) inputs.push_back(&*input);
    append_inputs(tensor, inputs, frame);
    frame.tensors.push_back(std::move(tensor));
  }
}

void add_each(const std::vector<Column>& columns, Outgoing& frame) {
  for (size_t name = 0; name < columns.size(); ++name) {
    for (size_t request = 0; request < columns[name].size(); ++request) {
      const std::optional<Input>& input = columns[name][request];
      if (!input) continue;
      Tensor tensor{static_cast<uint16_t>(name),
                    static_cast<uint32_t>(request),
                    input->dtype,
                    {input->shape, input->shape + input->rank},
                    0,
                    {}};
      append_inputs(tensor, {&*input}, frame);
      frame.tensors.push_back(std::move(tensor));
    }
  }
}

}  // namespace

Outgoing encode(const Calls& calls, const Description& model) {
  std::vector<TRITONBACKEND_Request*> requests;
  for (const auto& call : calls) requests.push_back(call->request());
  Outgoing frame;
  Details details = details_of(requests, model);
  frame.requests = static_cast<uint32_t>(requests.size());
  frame.metadata = std::move(details.metadata);
  frame.apart = details.apart;
  const std::vector<Column> columns = columns_of(requests, model);
  frame.encoded.reserve(2 * columns.size() * requests.size());  // parts point into it
  frame.has_rows = model.batching && have_common_rows(columns, frame.rows);
  if (frame.has_rows) {
    add_whole_batch(columns, frame);
  } else {
    frame.rows.clear();
    add_each(columns, frame);
  }
  return frame;
}

uint64_t batch_size(const Calls& calls, const Description& model) noexcept {
  if (!model.batching) return calls.size();
  uint64_t rows = 0;
  for (const auto& call : calls) {
    TRITONBACKEND_Input* input = nullptr;
    const int64_t* shape = nullptr;
    uint32_t rank = 0;
    const bool found =
        ignore(TRITONBACKEND_RequestInputByIndex(call->request(), 0, &input)) &&
        ignore(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &rank, nullptr, nullptr)) && rank > 0;
    rows += found && shape[0] > 0 ? static_cast<uint64_t>(shape[0]) : 1;
  }
  return rows;
}

Outgoing cancellation(uint32_t sequence, size_t requests, const std::vector<size_t>& cancelled, bool all_done) {
  Outgoing frame;
  frame.kind = Kind::cancel;
  frame.sequence = sequence;
  frame.requests = static_cast<uint32_t>(requests);
  for (const size_t index : cancelled) frame.metadata += (frame.metadata.empty() ? "" : ",") + std::to_string(index);
  frame.metadata = "{\"requests\":[" + frame.metadata + "],\"all\":" + (all_done ? "true" : "false") + "}";
  return frame;
}

}  // namespace pytriton
