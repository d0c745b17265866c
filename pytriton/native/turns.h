// One batch at a time, answered before the server hands over the next. The fastest way, for callables that answer at
// once.
#pragma once

#include <exception>

#include "codec.h"
#include "link.h"

namespace pytriton {

// Answers the batches of one instance.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual void execute(Calls calls) = 0;
};

class Turns : public Batches, private Taker {
 public:
  Turns(std::unique_ptr<Link> link, const Description& model, TRITONBACKEND_ModelInstance* instance)
      : link_(std::move(link)), model_(model), instance_(instance) {
    link_->pass_to(*this);
  }
  ~Turns() override { link_->close(); }

  void execute(Calls calls) override;

 private:
  // A batch that was sent, and what became of it.
  struct Exchange {
    const Calls& calls;
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

  void take(Channel& channel, const Reply& reply) noexcept override;
  void lose(Channel&) noexcept override {}  // the batch that it had gets no answer
  void answer(Calls& calls, Times& times);
  void answer_each(const Calls& calls, Times& times);
  void exchange(Calls& calls, Times& times);
  void read(Channel& channel, const Reply& reply, Exchange& exchange);
  static void tell_cancelled(Channel& channel, const Exchange& exchange);

  std::unique_ptr<Link> link_;
  const Description& model_;
  TRITONBACKEND_ModelInstance* instance_;
  Reply reply_;
  Exchange* exchange_ = nullptr;
  bool is_lost_ = false;  // the worker died with a batch
};

}  // namespace pytriton
