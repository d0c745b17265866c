// A copy of a request that a Shadow's first model has answered: sent to its second model, whose answer is compared.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inference.h"
#include "traffic.h"

namespace pytriton::http {

// Nobody waits for it. Counts its outcome when its last reference is dropped.
class ShadowCopy final : public Caller {
 public:
  // That of a request which goes to the first model of a Shadow; none if chance is against it. It may be one that is
  // dropped.
  static std::optional<Reference<ShadowCopy>> begin(const std::shared_ptr<Traffic>& traffic,
                                                    const InferenceRequest& request, Caller& caller);
  ShadowCopy(const ShadowCopy&) = delete;
  ShadowCopy& operator=(const ShadowCopy&) = delete;

  // Keeps a response of the first model, before the client gets it.
  void keep(const ModelResponse& response);

  // Sends the copy, if the first model has answered. Does not wait.
  void send(TRITONSERVER_Server* server);

  void on_disconnect(std::function<void()> cancel) override;
  void defer(std::function<void()> task) override { task(); }
  bool reserve(uint64_t bytes, Charge& charge) override;
  void retain() override { ++references_; }
  void release() override {
    if (--references_ == 0) delete this;
  }

 private:
  class Answer;
  struct Sent;
  static Sent& sent();
  struct KeptOutput {
    std::string name;
    TRITONSERVER_DataType dtype{};
    std::vector<int64_t> shape;
    std::string data;
  };

  explicit ShadowCopy(std::shared_ptr<Traffic> traffic) : traffic_(std::move(traffic)) {}
  ~ShadowCopy();
  void reserve_kept(uint64_t bytes);  // throws Failure if there is no memory
  void copy(const InferenceRequest& request);
  void end(Traffic::Outcome outcome);
  bool is_like(const ModelResponse& response) const;
  bool is_like(const KeptOutput& kept, const Output& output) const;

  const std::shared_ptr<Traffic> traffic_;
  std::atomic<int> references_{0};
  Charge charge_;       // of what is kept
  uint64_t bytes_ = 0;  // the same, of all clients together
  InferenceRequest request_;
  std::string id_;
  Memory inputs_;
  std::vector<KeptOutput> outputs_;
  std::function<void()> cancel_;  // Sent's mutex guards it
  bool has_place_ = false;        // among those that are sent
  bool has_answer_ = false;       // of the first model
  std::optional<Traffic::Outcome> outcome_;
};

}  // namespace pytriton::http
