// Several batches at a time: the server need not wait for answers, and responses go out when they come. For decoupled
// models, whose requests get any number of responses, and for `async def` callables. Four threads work:
//
//   the server's   hands batches over, and gets back to its queue when another may be in flight
//   reader         one per connection: passes replies on
//   repeater       sends requests that failed together again, each alone
//   watcher        notices cancelled requests; it waits neither for the worker nor for a thread that sends
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <thread>
#include <unordered_map>

#include "../frames/memory.h"
#include "batch.h"
#include "serial_executor.h"
#include "worker_connection.h"

namespace pytriton {

class ConcurrentExecutor : public Executor, private ReplyHandler {
 public:
  ConcurrentExecutor(std::unique_ptr<WorkerConnection> connection, const Model& model,
                     TRITONBACKEND_ModelInstance* instance, int64_t limit);
  ~ConcurrentExecutor() override;

  void execute(Requests requests) override;

 private:
  struct Reading {
    std::thread thread;
    std::atomic<bool> is_over{false};
  };

  void close();
  double wait_for_slot();  // returns the seconds that it took
  void take_slot();
  void add_slots(int64_t count);
  void set_limit(int64_t limit);
  void submit(const BatchPointer& batch);
  void hand_over(const BatchPointer& batch, Outgoing& frame, bool& is_known);
  void fail_unsent(const BatchPointer& batch, const Outgoing* known, Code code, const std::string& message);

  // reader.cpp
  void start_reader(const std::shared_ptr<Channel>& channel);
  void read(const std::shared_ptr<Channel>& channel);
  void handle(Channel& channel, const Reply& reply) noexcept override;
  void worker_gone(Channel& channel) noexcept override;
  bool handle_reply(Channel& channel, const Reply& reply);
  void handle_error(const Reply& reply, const BatchPointer& batch);
  bool has_memory(const Reply& reply);
  void fail_batches(const Channel* channel, const std::string& reason);  // null: of any
  BatchPointer remove(uint32_t number);

  void repeat();
  void watch();
  void drop_cancelled_failed();
  void drop_cancelled_in_flight();

  std::unique_ptr<WorkerConnection> worker_;
  const Model& model_;
  TRITONBACKEND_ModelInstance* instance_;
  CancelledStreams cancelled_;

  std::mutex sending_;  // not for a reader at work: the worker may be waiting for it to read
  std::list<Reading> readers_;

  std::mutex mutex_;  // for what follows
  std::condition_variable slot_free_, can_repeat_, closed_;
  int64_t limit_;
  int64_t slots_;  // below 0 after the limit was lowered
  std::unordered_map<uint32_t, BatchPointer> batches_;
  std::deque<BatchPointer> failed_;  // of one request each, to be sent again
  std::shared_ptr<Channel> current_;
  bool closing_ = false;

  bool waited_ = false;  // the server's thread alone
  std::mutex memory_mutex_;
  Memory memory_;
  uint64_t unchecked_bytes_ = 0;
  std::thread repeater_, watcher_;
};

}  // namespace pytriton
