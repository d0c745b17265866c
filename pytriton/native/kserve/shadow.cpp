#include "shadow.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <new>
#include <set>

#include "../edge/drain.h"
#include "dtypes.h"

namespace pytriton::http {

namespace {

size_t aligned(size_t size) { return (size + 63) / 64 * 64; }

double value_of(float number) { return number; }
double value_of(double number) { return number; }

// A floating point number of 16 bits.
struct Half {
  uint16_t bits;
};
double value_of(Half half) {
  const int exponent = half.bits >> 10 & 31, mantissa = half.bits & 1023;
  double value = std::ldexp(exponent ? 1024 + mantissa : mantissa, std::max(exponent, 1) - 25);
  if (exponent == 31) value = mantissa ? NAN : INFINITY;
  return half.bits >> 15 ? -value : value;
}

bool is_close(double one, double other, const Comparison& comparison) {
  if (one == other || (std::isnan(one) && std::isnan(other))) return true;
  return std::isfinite(one) && std::isfinite(other) &&
         std::abs(one - other) <= comparison.atol + comparison.rtol * std::abs(other);
}

template <typename Item>
bool are_close(std::string_view one, const char* other, const Comparison& comparison) {
  for (size_t at = 0; at + sizeof(Item) <= one.size(); at += sizeof(Item)) {
    Item first, second;
    std::memcpy(&first, one.data() + at, sizeof first);
    std::memcpy(&second, other + at, sizeof second);
    if (!is_close(value_of(first), value_of(second), comparison)) return false;
  }
  return true;
}

}  // namespace

// The second model's answer.
class ShadowCopy::Answer final : public Inference {
 public:
  explicit Answer(ShadowCopy& copy) : Inference(copy), copy_(copy) {}

 private:
  void respond(ModelResponse response, bool /*final*/) override {
    if (!response) return copy_.end(Traffic::kFailed);
    response.check_success();
    copy_.end(copy_.is_like(response) ? Traffic::kSame : Traffic::kDifferent);
  }
  void fail(const Failure& failure, bool /*final*/) override {
    copy_.end(failure.code == Code::cancelled ? Traffic::kDropped : Traffic::kFailed);
  }

  ShadowCopy& copy_;
};

// Copies that are sent, until the server drains: nobody waits for them.
struct ShadowCopy::Sent {
  std::mutex mutex;
  std::set<ShadowCopy*> copies;
  bool is_over = false;
};

ShadowCopy::Sent& ShadowCopy::sent() {
  static auto* const only = [] {
    auto* const made = new Sent;  // is used while the process ends
    on_drain([made] {
      const std::lock_guard<std::mutex> lock(made->mutex);
      made->is_over = true;
      for (ShadowCopy* each : made->copies) each->cancel_();
    });
    return made;
  }();
  return *only;
}

std::optional<Reference<ShadowCopy>> ShadowCopy::begin(const std::shared_ptr<Traffic>& traffic,
                                                       const InferenceRequest& request, Caller& caller) {
  if (!traffic->wants_copy()) return std::nullopt;
  auto* const made = new (std::nothrow) ShadowCopy(traffic);
  if (!made) return std::nullopt;
  Reference<ShadowCopy> copy(*made);
  copy->has_place_ = traffic->take_place();
  if (!copy->has_place_) {
    copy->end(Traffic::kDropped);
    return copy;
  }
  try {
    caller.reserve(0, copy->charge_);  // a refusal would be the client's answer
    copy->copy(request);
  } catch (const std::exception&) {
    copy->end(Traffic::kDropped);
  }
  return copy;
}

ShadowCopy::~ShadowCopy() {
  if (has_answer_ && outcome_) traffic_->count(*outcome_);
  if (has_place_) traffic_->give_place_back(bytes_);
}

void ShadowCopy::on_disconnect(std::function<void()> cancel) {
  Sent& all = sent();
  const std::lock_guard<std::mutex> lock(all.mutex);
  cancel_ = std::move(cancel);
  if (!cancel_) {
    all.copies.erase(this);
  } else if (all.is_over) {
    cancel_();
  } else {
    try {
      all.copies.insert(this);
    } catch (const std::bad_alloc&) {
      // It is not cancelled.
    }
  }
}

void ShadowCopy::reserve_kept(uint64_t bytes) {
  if (traffic_->reserve(bytes)) {
    bytes_ += bytes;
    if (charge_.resize(bytes_) == Refusal::none) return;
  }
  throw Failure(Code::unavailable, "no memory for a copy");
}

void ShadowCopy::copy(const InferenceRequest& request) {
  request_.is_copy = true;
  request_.model = traffic_->targets()[1];
  request_.id = id_ = request.id;
  request_.is_raw = request.is_raw;
  request_.parameters = request.parameters;
  request_.priority = traffic_->comparison()->priority;
  for (const RequestedOutput& output : request.outputs) request_.outputs.emplace_back().name = output.name;
  size_t size = 0;
  for (const Input& input : request.inputs) size += aligned(input.size);
  reserve_kept(size);
  inputs_ = allocate(size);
  char* at = inputs_.get();
  for (const Input& input : request.inputs) {
    Input& copied = request_.inputs.emplace_back();
    copied.name = input.name;
    copied.dtype = input.dtype;
    copied.shape = input.shape;
    if (input.size) std::memcpy(at, input.data, input.size);
    copied.data = at;
    copied.size = input.size;
    at += aligned(input.size);
  }
}

bool ShadowCopy::reserve(uint64_t bytes, Charge& charge) {
  Charge reserved = charge_.another();
  if (reserved.resize(bytes) != Refusal::none) return false;
  charge = std::move(reserved);
  return true;
}

void ShadowCopy::end(Traffic::Outcome outcome) {
  if (outcome_) return;
  outcome_ = outcome;
  if (outcome != Traffic::kDifferent || !traffic_->may_report()) return;
  log_warning("model " + traffic_->targets()[1] + " answered request '" + id_ + "' otherwise than " +
              traffic_->targets()[0] + "; Shadow.counts has how often");
}

void ShadowCopy::keep(const ModelResponse& response) {
  if (!response || has_answer_) return;
  try {
    response.check_success();
  } catch (const Failure&) {
    return;
  }
  has_answer_ = true;
  if (outcome_) return;
  try {
    const uint32_t count = response.output_count();
    for (uint32_t index = 0; index < count; ++index) {
      const Output output = response.output(index);
      reserve_kept(output.size);
      outputs_.push_back({std::string(output.name),
                          output.dtype,
                          {output.shape, output.shape + output.rank},
                          std::string(output.data, output.size)});
    }
  } catch (const std::exception&) {
    end(Traffic::kDropped);
  }
}

void ShadowCopy::send(TRITONSERVER_Server* server) {
  if (!has_answer_ || outcome_) return;
  try {
    infer(server, std::move(request_), std::make_unique<Answer>(*this));
  } catch (const std::exception&) {
    end(Traffic::kFailed);
  }
}

bool ShadowCopy::is_like(const ModelResponse& response) const {
  if (response.output_count() != outputs_.size()) return false;
  for (uint32_t index = 0; index < outputs_.size(); ++index) {
    const Output output = response.output(index);
    const auto kept = std::find_if(outputs_.begin(), outputs_.end(),
                                   [&](const KeptOutput& each) { return each.name == output.name; });
    if (kept == outputs_.end() || !is_like(*kept, output)) return false;
  }
  return true;
}

bool ShadowCopy::is_like(const KeptOutput& kept, const Output& output) const {
  if (kept.dtype != output.dtype || kept.data.size() != output.size ||
      !std::equal(kept.shape.begin(), kept.shape.end(), output.shape, output.shape + output.rank))
    return false;
  if (std::memcmp(kept.data.data(), output.data, output.size) == 0) return true;
  const Comparison& comparison = *traffic_->comparison();
  switch (kept.dtype) {
    case dtype::kFp16:
      return are_close<Half>(kept.data, output.data, comparison);
    case dtype::kFp32:
      return are_close<float>(kept.data, output.data, comparison);
    case dtype::kFp64:
      return are_close<double>(kept.data, output.data, comparison);
    default:
      return false;
  }
}

}  // namespace pytriton::http
