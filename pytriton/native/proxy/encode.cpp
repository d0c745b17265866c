#include <algorithm>

#include "../frames/tensors.h"
#include "codec.h"
#include "details.h"
#include "inputs.h"

namespace pytriton {

namespace {

bool fits_below(const Input& input, const Input& first) {
  return input.rank == first.rank && std::equal(input.shape + 1, input.shape + input.rank, first.shape + 1);
}

// Whether the batch can travel as one tensor per input: all requests have the same inputs, with equal trailing shapes,
// and all inputs of a request equally many rows. Fills in these.
bool have_common_rows(const std::vector<Inputs>& batch, std::vector<uint32_t>& rows) {
  for (size_t name = 0; name < batch[0].size(); ++name) {
    const std::optional<Input>& first = batch[0][name];
    std::vector<uint32_t> counts;
    for (const Inputs& inputs : batch) {
      const std::optional<Input>& input = inputs[name];
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

// Splits the data of BYTES into two parts: all lengths, and all bytes. The list has room for them.
void split(Input& input, std::vector<std::string>& encoded) {
  std::string joined, lengths, bytes;
  if (input.parts.size() != 1) {
    for (const Part& part : input.parts) joined.append(static_cast<const char*>(part.at), part.size);
  }
  const std::string_view whole =
      input.parts.size() == 1 ? std::string_view(static_cast<const char*>(input.parts[0].at), input.parts[0].size)
                              : joined;
  split_strings(whole, input.elements, lengths, bytes);
  input.parts.clear();
  for (std::string* each : {&lengths, &bytes}) {
    encoded.push_back(std::move(*each));
    input.parts.push_back({encoded.back().data(), encoded.back().size()});
  }
}

Inputs read_inputs(TRITONBACKEND_Request* request, const Model& model, Outgoing& frame) {
  Inputs inputs = inputs_of(request, model.inputs);
  for (std::optional<Input>& input : inputs) {
    if (!input) continue;
    append_parts(*input, input->parts);
    if (input->dtype == kBytes) split(*input, frame.encoded);
  }
  return inputs;
}

// Gives a tensor the data of one input of some requests. Of BYTES, the lengths of all precede the bytes of all.
void append_data(Tensor& tensor, const std::vector<const Input*>& inputs) {
  const size_t times = tensor.dtype == kBytes ? 2 : 1;
  for (size_t time = 0; time < times; ++time) {
    for (const Input* input : inputs) {
      for (size_t part = time; part < input->parts.size(); part += times) tensor.parts.push_back(input->parts[part]);
    }
  }
  tensor.size = 0;
  for (const Part& part : tensor.parts) tensor.size += part.size;
}

Tensor tensor_like(const Input& input, size_t name, uint32_t request) {
  return {static_cast<uint16_t>(name), request, input.dtype, {input.shape, input.shape + input.rank}, 0, {}};
}

void add_whole_batch(const std::vector<Inputs>& batch, Outgoing& frame) {
  int64_t total = 0;
  for (const uint32_t rows : frame.rows) total += rows;
  for (size_t name = 0; name < batch[0].size(); ++name) {
    if (!batch[0][name]) continue;
    Tensor tensor = tensor_like(*batch[0][name], name, kWholeBatch);
    tensor.shape[0] = total;
    std::vector<const Input*> inputs;
    inputs.reserve(batch.size());
    for (const Inputs& each : batch) inputs.push_back(&*each[name]);
    append_data(tensor, inputs);
    frame.tensors.push_back(std::move(tensor));
  }
}

void add_each(const std::vector<Inputs>& batch, Outgoing& frame) {
  for (size_t name = 0; name < batch[0].size(); ++name) {
    for (size_t request = 0; request < batch.size(); ++request) {
      const std::optional<Input>& input = batch[request][name];
      if (!input) continue;
      Tensor tensor = tensor_like(*input, name, static_cast<uint32_t>(request));
      append_data(tensor, {&*input});
      frame.tensors.push_back(std::move(tensor));
    }
  }
}

}  // namespace

Outgoing encode(Requests& requests, const Model& model, Requests& refused, const char* reason) {
  Outgoing frame;
  frame.encoded.reserve(2 * model.inputs.size() * requests.size());  // parts point into it
  std::vector<Inputs> batch;
  for (auto request = requests.begin(); request != requests.end();) {
    try {
      const Details details = details_of((*request)->request(), model, reason);
      batch.push_back(read_inputs((*request)->request(), model, frame));
      add_details(frame.metadata, batch.size() - 1, details);
      frame.apart |= details.apart;
      ++request;
    } catch (const Failure& error) {
      (*request)->fail(error.code, error.what());
      refused.push_back(std::move(*request));
      request = requests.erase(request);
    }
  }
  if (!frame.metadata.empty()) frame.metadata += '}';
  frame.requests = static_cast<uint32_t>(requests.size());
  frame.has_rows = model.batching && !requests.empty() && have_common_rows(batch, frame.rows);
  if (frame.has_rows) {
    add_whole_batch(batch, frame);
  } else if (!requests.empty()) {
    frame.rows.clear();
    add_each(batch, frame);
  }
  return frame;
}

uint64_t batch_size(const Requests& requests, const Model& model) noexcept {
  if (!model.batching) return requests.size();
  uint64_t rows = 0;
  for (const auto& request : requests) {
    TRITONBACKEND_Input* input = nullptr;
    const int64_t* shape = nullptr;
    uint32_t rank = 0;
    const bool found =
        ignore(TRITONBACKEND_RequestInputByIndex(request->request(), 0, &input)) &&
        ignore(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &rank, nullptr, nullptr)) && rank > 0;
    rows += found && shape[0] > 0 ? static_cast<uint64_t>(shape[0]) : 1;
  }
  return rows;
}

QueuedRequest queued(const std::shared_ptr<Request>& request, const Model& model) {
  QueuedRequest entry;
  entry.request = request;
  entry.rows = batch_size({request}, model);
  if (model.has_various_shapes) entry.shapes = shapes_of(request->request(), model.inputs, !model.merges_shapes);
  if (model.cost) {
    const RowCost found = row_cost(request->request(), *model.cost, entry.rows);
    entry.row_cost = found.cost;
    if (model.merges_shapes) entry.row_bytes = found.bytes;
  }
  return entry;
}

Outgoing cancellation(uint32_t number, size_t requests, const std::vector<size_t>& cancelled, bool all_done) {
  Outgoing frame;
  frame.kind = Kind::cancel;
  frame.number = number;
  frame.requests = static_cast<uint32_t>(requests);
  for (const size_t index : cancelled) frame.metadata += (frame.metadata.empty() ? "" : ",") + std::to_string(index);
  frame.metadata = "{\"requests\":[" + frame.metadata + "],\"all\":" + (all_done ? "true" : "false") + "}";
  return frame;
}

Outgoing cancellation(uint32_t number, const Requests& requests) {
  std::vector<size_t> cancelled;
  for (size_t index = 0; index < requests.size(); ++index) {
    if (requests[index]->is_cancelled()) cancelled.push_back(index);
  }
  return cancellation(number, requests.size(), cancelled, cancelled.size() == requests.size());
}

}  // namespace pytriton
