// One batch at a time for a worker that answers one after the other, as the model's Scheduler sends them. Replies are
// read by a thread for each connection, which also restores that. The worker asks which requests are cancelled, and is
// told nothing else between batches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "codec.h"
#include "scheduler.h"
#include "worker_connection.h"

namespace pytriton {

class ScheduledExecutor : public BatchWorker, private ReplyHandler {
 public:
  // Takes batches from now on. Throws if there are too many threads.
  ScheduledExecutor(std::unique_ptr<WorkerConnection> connection, const Model& model,
                    TRITONBACKEND_ModelInstance* instance, Scheduler& scheduler);
  // Waits for the answer to the last batch.
  ~ScheduledExecutor() override;

  bool is_free() override;
  bool is_lost() override;
  bool is_local() override { return is_local_; }
  void send(NextBatch next) override;
  void adopt(const RequestPointers& late) override;

 private:
  struct Batch {
    Requests requests;
    const BatchRecord record;
    const Reason reason;
    const bool is_repeated, is_unread;
    Times times{};
    uint32_t number = 0, sent = 0;  // of the frame, and requests in it
    const Channel* channel = nullptr;
    bool has_failed = false;  // in the worker; how long that took says nothing of other batches
    bool is_sent = false;     // until then it may be sent over another connection
    bool was_read = false;    // for certain
  };
  using BatchPointer = std::shared_ptr<Batch>;
  struct Reading {
    std::thread thread;
    std::atomic<bool> is_over{false};
  };

  void close();
  void submit(const BatchPointer& batch);
  bool take_back(const BatchPointer& batch);
  void fail_unsent(const BatchPointer& batch, Code code, const std::string& message);
  void return_unread(const Batch& batch);
  void release(const Batch& batch);

  void start_reader(const std::shared_ptr<Channel>& channel);
  void read(const std::shared_ptr<Channel>& channel);
  void reconnect();
  bool try_to_reconnect();

  void handle(Channel& channel, const Reply& reply) noexcept override;
  void worker_gone(Channel& channel) noexcept override { connection_lost(channel, "it ended"); }
  void handle_reply(Channel& channel, const Reply& reply);
  void answer(Channel& channel, const Reply& reply, const Batch& batch) const;
  void handle_error(const Reply& reply, Batch& batch);
  void send_cancellation(Channel& channel, Batch& batch);
  void connection_lost(const Channel& channel, const std::string& reason);
  void requeue(const Requests& requests, bool is_repeated, bool is_unread);
  void report(const Batch& batch) const;

  std::unique_ptr<WorkerConnection> worker_;
  const Model& model_;
  TRITONBACKEND_ModelInstance* instance_;
  Scheduler& scheduler_;
  const bool is_local_;

  std::mutex sending_;  // of worker_ and readers_
  std::list<Reading> readers_;

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  BatchPointer batch_;  // until somebody takes it to answer it
  bool is_busy_ = false, is_reconnecting_ = false, is_lost_ = false, is_closing_ = false;
  std::shared_ptr<Channel> current_;
  const Channel* unread_ = nullptr;  // it ended before the worker had read what was sent last
};

}  // namespace pytriton
