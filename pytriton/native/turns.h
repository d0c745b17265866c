// One batch at a time, answered before the server hands over the next. The fastest way, for callables that answer at
// once.
#pragma once

#include "codec.h"
#include "link.h"

namespace pytriton {

// Answers the batches of one instance.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual void execute(Calls calls) = 0;
};

class Turns : public Batches {
 public:
  Turns(std::unique_ptr<Link> link, const Description& model, TRITONBACKEND_ModelInstance* instance)
      : link_(std::move(link)), model_(model), instance_(instance) {}
  ~Turns() override { link_->channel()->say_goodbye(); }

  void execute(Calls calls) override;

 private:
  void answer(const Calls& calls, Times& times);
  void answer_each(const Calls& calls, Times& times);
  void exchange(const Calls& calls, Times& times);
  bool receive(Channel& channel, const Calls& calls, uint32_t sequence);
  void tell_cancelled(const Calls& calls, uint32_t sequence);

  std::unique_ptr<Link> link_;
  const Description& model_;
  TRITONBACKEND_ModelInstance* instance_;
  Reply reply_;
  bool is_lost_ = false;  // the worker died with a batch
};

}  // namespace pytriton
