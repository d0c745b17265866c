// One batch at a time, answered before the server hands over the next. The fastest way, for callables that answer at
// once.
#pragma once

#include <exception>

#include "codec.h"
#include "worker_connection.h"

namespace pytriton {

// Answers the batches of one instance.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void execute(Requests requests) = 0;
};

class SerialExecutor : public Executor, private ReplyHandler {
 public:
  SerialExecutor(std::unique_ptr<WorkerConnection> connection, const Model& model,
                 TRITONBACKEND_ModelInstance* instance)
      : worker_(std::move(connection)), model_(model), instance_(instance) {
    worker_->deliver_to(*this);
  }
  ~SerialExecutor() override { worker_->close(); }

  void execute(Requests requests) override;

 private:
  // A batch that was sent, and what became of it.
  struct Exchange {
    const Requests& batch;
    Times& times;
    uint32_t number, requests;
    const Channel* channel = nullptr;
    bool was_read = false, is_over = false, isolate = false;
    std::exception_ptr failure{};
  };
  // Has replies taken for an exchange, as long as it lasts.
  struct Current {
    Current(Exchange*& place, Exchange& exchange) : place(place) { place = &exchange; }
    ~Current() { place = nullptr; }
    Exchange*& place;
  };

  void handle(Channel& channel, const Reply& reply) noexcept override;
  void worker_gone(Channel&) noexcept override {}  // the batch that it had gets no answer
  void answer(Requests& requests, Times& times);
  void answer_each(const Requests& requests, Times& times);
  void exchange(Requests& requests, Times& times);
  void read(Channel& channel, const Reply& reply, Exchange& exchange);
  static void send_cancellation(Channel& channel, const Exchange& exchange);

  std::unique_ptr<WorkerConnection> worker_;
  const Model& model_;
  TRITONBACKEND_ModelInstance* instance_;
  Reply reply_;
  Exchange* exchange_ = nullptr;
  bool worker_died_ = false;  // the worker died with a batch
};

}  // namespace pytriton
