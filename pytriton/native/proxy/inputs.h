// What the server's requests hold.
#pragma once

#include <optional>
#include <vector>

#include "../frames/triton.h"
#include "../frames/wire.h"
#include "model.h"

namespace pytriton {

// One input of a request; valid until that is released.
struct Input {
  TRITONBACKEND_Input* handle;
  const char* name;
  uint8_t dtype;
  const int64_t* shape;
  uint32_t rank;
  uint64_t size;  // bytes
  uint32_t buffers;
  uint64_t elements;
  std::vector<Part> parts;  // the data, once they were looked up
};
using Inputs = std::vector<std::optional<Input>>;

// The inputs at the places of the model's; none where the request lacks an optional one. Inputs that the server adds
// for sequences are left out. Throws BadRequest unless each has the dtype and rank of the model's, extents that it
// allows, and as many bytes as its shape says, where its dtype tells: the server's own check multiplies without regard
// to overflow, and drops the batch axis of requests whose number of rows is 0 modulo 2^32.
Inputs inputs_of(TRITONBACKEND_Request* request, const std::vector<ExpectedInput>& expected);

// Text that is equal for requests with the same inputs, whose shapes are equal below the batch axis, with or without
// the last axis of each whose size the model leaves open.
std::string shapes_of(TRITONBACKEND_Request* request, const std::vector<ExpectedInput>& expected, bool with_last_open);

// What the most costly row of the request costs, at least 1, and the mean bytes of a row; each at most 2^32 - 1.
struct RowCost {
  uint64_t cost, bytes;
};
RowCost row_cost(TRITONBACKEND_Request* request, const RequestCost& cost, uint64_t rows);

// The buffers of an input; throws BadRequest if they are not in the CPU's memory.
void append_parts(const Input& input, std::vector<Part>& parts);

// Whether a client made the request, and not the server to fill a place of a sequence.
bool is_real(TRITONBACKEND_Request* request, const std::string& ready);

}  // namespace pytriton
