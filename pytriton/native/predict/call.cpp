#include "call.h"

#include "../edge/clock.h"
#include "../edge/route_options.h"
#include "../kserve/forwarded_headers.h"

namespace pytriton::http {

namespace {

std::atomic<size_t> calls{0};

Deadlines& timeouts() {
  static auto* const timeouts =
      new Deadlines(route_options().predict.timeout_ms * kMillisecond_ns);  // its thread never ends
  return *timeouts;
}

}  // namespace

// The request of a group.
class Call::Part final : public Inference {
 public:
  Part(Exchange& exchange, std::shared_ptr<Call> call, size_t number, Group group)
      : Inference(exchange), call_(std::move(call)), number_(number), group_(std::move(group)) {}

 private:
  void respond(ModelResponse response, bool final) override {
    if (response) response.check_success();
    call_->respond(group_, response, final);
  }
  void fail(const Failure& failure, bool /*final*/) override { call_->fail(group_, failure); }
  void refuse(const Failure& failure) override { call_->refuse(group_, failure); }
  void watch(std::function<void()> cancel) override { call_->watch(number_, std::move(cancel)); }

  const std::shared_ptr<Call> call_;
  const size_t number_;
  const Group group_;
};

Call::Call(Exchange& exchange, std::shared_ptr<const Signature> signature, AnswerOptions options, size_t groups)
    : exchange_(exchange), signature_(std::move(signature)), options_(std::move(options)), cancels_(groups) {
  ++calls;
}

Call::~Call() {
  if (is_watching_) exchange_->on_disconnect(nullptr);  // waits for a call of cancel()
  timeouts().end(deadline_);
  --calls;
}

size_t Call::count() { return calls; }

void Call::send(TRITONSERVER_Server* server, int64_t version, Rows& rows, const std::vector<Group>& groups,
                std::function<void()> fall_back) {
  fall_back_ = std::move(fall_back);
  begin_deadline();
  for (size_t number = 0; number < groups.size() && !is_over(); ++number) {
    const Group& group = groups[number];
    try {
      InferenceRequest request;
      request.model = signature_->model->name;
      request.version = version;
      request.id = options_.id;
      add_inputs(request, rows, group, signature_->model->max_batch_size > 0);
      infer(server, std::move(request), std::make_unique<Part>(*exchange_, shared_from_this(), number, group));
    } catch (const Failure& failure) {
      refuse(group, failure);
    } catch (const std::bad_alloc&) {
      this->fall_back();
    }
  }
  if (is_over()) return;
  is_watching_ = true;
  exchange_->on_disconnect([this] { cancel(); });
}

void Call::refuse(const Group& group, const Failure& failure) {
  if (is_queue_full(failure)) return fail(group, failure);
  fall_back();
}

void Call::fall_back() {
  if (!claim()) return;
  cancel();
  if (std::exchange(is_watching_, false)) exchange_->on_disconnect(nullptr);
  fall_back_();
}

PredictError Call::too_late(int64_t timeout_ns) const { return http::too_late(signature_->model->name, timeout_ns); }

void Call::begin_deadline() { timeouts().begin(deadline_, weak_from_this()); }

void Call::cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_cancelled_ = true;
  for (const auto& cancel : cancels_)
    if (cancel) cancel();
}

void Call::watch(size_t part, std::function<void()> cancel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancels_[part] = std::move(cancel);
  if (is_cancelled_ && cancels_[part]) cancels_[part]();
}

}  // namespace pytriton::http
