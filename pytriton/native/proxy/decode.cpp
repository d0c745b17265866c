#include <charconv>
#include <cstring>

#include "../frames/tensors.h"
#include "codec.h"

namespace pytriton {

namespace {

Code code_of(const std::string& name) {
  static const char* const names[] = {"UNKNOWN",     "INTERNAL",    "NOT_FOUND",      "INVALID_ARG",
                                      "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"};
  for (size_t code = 0; code < std::size(names); ++code) {
    if (name == names[code]) return static_cast<Code>(code);
  }
  return Code::internal;
}

// A tensor's share of one request: whole rows of it, or all.
struct Share {
  std::vector<int64_t> shape;
  uint64_t first, elements;
};

class Distribution {
 public:
  Distribution(const Reply& reply, const Requests& requests, const Model& model)
      : reply_(reply), requests_(requests), model_(model) {
    if (reply.frame.tensors.size() > 1) taken_.resize(requests.size() * model.outputs.size());
  }

  void distribute(const Placed& tensor) {
    if (tensor.name >= model_.outputs.size() || tensor.dtype != model_.outputs[tensor.name].dtype) {
      throw FrameError("output " + std::to_string(tensor.name) + " cannot have the dtype code " +
                       std::to_string(tensor.dtype));
    }
    std::string encoded;
    std::vector<uint32_t> lengths;
    if (!tensor.item_bytes) {
      encoded.resize(tensor.size);
      reply_.read(tensor.offset, encoded.data(), encoded.size());
      lengths = string_lengths(encoded, tensor.elements);
    }
    uint64_t byte = 4 * lengths.size();  // of the next string
    const bool whole = tensor.request == kWholeBatch;
    const uint64_t* extents = reply_.frame.shape(tensor);
    Share share{{extents, extents + tensor.rank}, 0, tensor.elements};
    for (size_t index = whole ? 0 : tensor.request; index < (whole ? requests_.size() : tensor.request + size_t{1});
         ++index) {
      if (whole) {
        const uint64_t total = extents[0];
        share.shape[0] = reply_.frame.rows[index];
        share.elements = total ? tensor.elements / total * reply_.frame.rows[index] : 0;
      }
      take(index, tensor.name);
      if (tensor.item_bytes) {
        give(index, tensor, share);
      } else {
        give_strings(index, tensor, share, encoded, lengths, byte);
      }
      share.first += share.elements;
    }
  }

 private:
  void take(size_t request, size_t output) {
    if (taken_.empty()) return;
    if (taken_[request * model_.outputs.size() + output]) throw FrameError("an output comes twice");
    taken_[request * model_.outputs.size() + output] = true;
  }

  char* add(size_t index, const Placed& tensor, const Share& share, uint64_t size) {
    Request& request = *requests_[index];
    const Output& output = model_.outputs[tensor.name];
    if (request.is_done() || request.has_failed() || !request.wants(output, model_.outputs.size())) return nullptr;
    try {
      return request.add(output, share.shape.data(), tensor.rank, size);
    } catch (const Failure& failure) {  // of this request alone
      request.fail(failure.code, failure.what());
      return nullptr;
    }
  }

  void give(size_t index, const Placed& tensor, const Share& share) {
    const uint64_t size = share.elements * tensor.item_bytes;
    char* to = add(index, tensor, share, size);
    if (to) reply_.read(tensor.offset + share.first * tensor.item_bytes, to, size);
  }

  void give_strings(size_t index, const Placed& tensor, const Share& share, const std::string& encoded,
                    const std::vector<uint32_t>& lengths, uint64_t& byte) {
    uint64_t size = 4 * share.elements;
    for (uint64_t each = 0; each < share.elements; ++each) size += lengths[share.first + each];
    char* to = add(index, tensor, share, size);
    for (uint64_t each = 0; each < share.elements; ++each) {
      const uint32_t length = lengths[share.first + each];
      if (to) {
        std::memcpy(to, &length, 4);
        if (length) std::memcpy(to + 4, encoded.data() + byte, length);
        to += 4 + uint64_t{length};
      }
      byte += length;
    }
  }

  const Reply& reply_;
  const Requests& requests_;
  const Model& model_;
  std::vector<bool> taken_;
};

// The server passes nothing on but a message. What a callable says beside it, as data, follows behind a mark.
std::string message_of(const Json& error) {
  const Json* const details = error.find("details");
  std::string message = error["message"].text();
  if (details) message.append(kDetailsSeparator).append(details->text());
  return message;
}

void fail_some(const Json& errors, const Requests& requests) {
  for (const auto& [number, error] : errors.object()) {
    size_t index = 0;
    const char* end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, index);
    if (read.ec != std::errc() || read.ptr != end || index >= requests.size()) {
      throw FrameError("there is no request " + number);
    }
    requests[index]->fail(code_of(error["code"].text()), message_of(error));
  }
}

}  // namespace

void respond(const Reply& reply, const Requests& requests, const Model& model) {
  for (const auto& request : requests) {
    if (!request->is_done()) request->begin();
  }
  Distribution distribution(reply, requests, model);
  for (const Placed& tensor : reply.frame.tensors) distribution.distribute(tensor);
  if (!reply.frame.metadata.empty()) fail_some(Json::parse(reply.frame.metadata)["errors"], requests);
}

Status status_of(const Reply& reply) {
  const Json status = Json::parse(reply.frame.metadata);
  return {code_of(status["code"].text()), message_of(status), status["isolate"].boolean()};
}

}  // namespace pytriton
