// The rules of Scheduler, with a worker that only notes what it is sent.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "proxy/scheduler.h"

namespace {

using namespace pytriton;
using std::chrono::milliseconds;

#define EXPECT(condition)                                                    \
  if (!(condition)) {                                                        \
    std::fprintf(stderr, "%s:%d: not %s\n", __func__, __LINE__, #condition); \
    std::exit(1);                                                            \
  }

using Sizes = std::vector<size_t>;

class Notes : public BatchWorker {
 public:
  bool is_free() override {
    const std::lock_guard lock(mutex_);
    return !is_busy_;
  }
  bool is_lost() override { return lost; }
  bool is_local() override { return false; }
  void send(NextBatch batch) override {
    const std::lock_guard lock(mutex_);
    gone += batch.cancelled.size();
    if (batch.requests.empty()) return;
    is_busy_ = true;
    sizes.push_back(batch.requests.size());
    record = batch.record;
    highest_cost = std::max<uint64_t>(highest_cost, record.size.cost);
    last = batch.reason;
    sent_.notify_all();
  }

  void adopt(const RequestPointers& late) override { adopted += late.size(); }

  // Its batch is answered.
  void answer(Scheduler& scheduler, std::chrono::nanoseconds took = {}) {
    rest(scheduler, took);
    scheduler.dispatch(*this);
  }

  // The same, before it asks for the next one.
  void rest(Scheduler& scheduler, std::chrono::nanoseconds took = {}) {
    BatchRecord answered;
    {
      const std::lock_guard lock(mutex_);
      is_busy_ = false;
      answered = record;
    }
    scheduler.answered(answered, took);
  }

  void wait_sent(size_t batches) {
    std::unique_lock lock(mutex_);
    EXPECT(sent_.wait_for(lock, std::chrono::seconds(60), [&] { return sizes.size() >= batches; }));
  }

  Sizes sent() {
    const std::lock_guard lock(mutex_);
    return sizes;
  }
  Reason reason() {
    const std::lock_guard lock(mutex_);
    return last;
  }

  std::atomic<bool> lost{false};
  std::atomic<size_t> gone{0};  // cancelled requests
  std::atomic<size_t> adopted{0};
  std::atomic<uint64_t> highest_cost{0};

 private:
  std::mutex mutex_;
  std::condition_variable sent_;
  Sizes sizes;
  Reason last{};
  BatchRecord record;
  bool is_busy_ = false;
};

struct Case {
  explicit Case(const BatchPolicy& policy)
      : scheduler(
            policy, arrivals, add(), [this](const Request& request) { return cancelled.count(&request) > 0; },
            [this](const RequestPointers& requests) { refused += requests.size(); }) {
    scheduler.add(worker);
  }
  ~Case() { scheduler.remove(worker); }

  Scheduler::Report add() {
    return [this](const Scheduler::Changes& changes) { waiting += changes.waiting; };
  }
  QueuedRequest make() {
    QueuedRequest made;  // of whose request nothing but the address is used
    made.request = std::shared_ptr<Request>(std::shared_ptr<void>(), reinterpret_cast<Request*>(&ids[++requests]));
    return made;
  }
  // Whether it is refused.
  bool request(uint64_t rows = 1, const std::string& shapes = "", uint64_t row_cost = 1) {
    std::vector<QueuedRequest> one(1, make());
    one[0].rows = rows;
    one[0].shapes = shapes;
    one[0].row_cost = row_cost;
    const size_t before = refused;
    scheduler.enqueue(std::move(one));
    return refused > before;
  }

  void cancel(size_t number) { cancelled.insert(reinterpret_cast<Request*>(&ids[number])); }

  std::array<std::max_align_t, 64> ids{};
  size_t requests = 0;
  std::set<const Request*> cancelled;
  std::shared_ptr<Arrivals> arrivals = std::make_shared<Arrivals>();
  std::atomic<int64_t> waiting{0};
  std::atomic<size_t> refused{0};
  Notes worker;
  Scheduler scheduler;
};

BatchPolicy rows(uint64_t most, std::vector<uint64_t> preferred = {}, std::chrono::microseconds delay = {}) {
  return {most, std::move(preferred), delay};
}

BatchPolicy in_time(uint64_t most, std::chrono::microseconds target) {
  BatchPolicy policy = rows(most);
  policy.target = target;
  policy.share = 0.99;
  return policy;
}

BatchPolicy patient(uint64_t most) {
  BatchPolicy policy = rows(most);
  policy.patience = std::chrono::hours(1);
  return policy;
}

void a_request_that_finds_a_free_worker_leaves_and_what_arrives_meanwhile_is_the_next_batch() {
  Case test(rows(8));
  for (int request = 0; request < 5; ++request) test.request();
  EXPECT(test.worker.sent() == Sizes{1});
  EXPECT(test.waiting == 4);
  test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 4}));
  EXPECT(test.worker.reason() == Reason::idle && test.waiting == 0);
}

void a_batch_has_no_more_rows_than_allowed_and_requests_keep_their_order() {
  Case test(rows(8));
  for (const uint64_t count : {1, 3, 4, 2, 8, 1}) test.request(count);
  for (int batch = 0; batch < 3; ++batch) test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 2, 1, 1}));
  EXPECT(test.worker.reason() == Reason::full);
}

void requests_of_different_shapes_are_not_merged() {
  Case test(rows(8));
  test.request();
  for (const char* shapes : {"a", "a", "b", "a"}) test.request(1, shapes);
  for (int batch = 0; batch < 3; ++batch) test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 2, 1, 1}));
}

void a_request_that_is_repeated_alone_comes_before_the_others() {
  Case test(rows(8));
  test.request();
  test.request();
  std::vector<QueuedRequest> again{test.make(), test.make()};
  for (QueuedRequest& each : again) each.is_repeated = true;
  test.scheduler.requeue(std::move(again));
  test.worker.answer(test.scheduler);
  EXPECT(test.worker.reason() == Reason::repeated);
  test.worker.answer(test.scheduler);
  test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 1, 1, 1}));
}

void a_batch_of_a_preferred_size_leaves_and_others_wait_for_the_delay() {
  Case test(rows(8, {3, 8}, std::chrono::hours(1)));
  for (int request = 0; request < 3; ++request) {
    EXPECT(test.worker.sent().empty());
    test.request();
  }
  EXPECT(test.worker.sent() == Sizes{3} && test.worker.reason() == Reason::preferred);
  test.worker.answer(test.scheduler);
  for (int request = 0; request < 4; ++request) test.request(2);
  EXPECT((test.worker.sent() == Sizes{3, 4}) && test.worker.reason() == Reason::preferred);
}

void cancelled_requests_take_no_room_in_a_batch() {
  Case test(rows(4));
  for (int request = 0; request < 13; ++request) test.request();
  for (const size_t number : {2, 3, 4, 6, 7, 9, 13}) test.cancel(number);
  test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 4}) && test.worker.gone == 7);
  test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 4, 1}) && test.worker.gone == 7);
  test.worker.answer(test.scheduler);
  EXPECT(test.waiting == 0);
}

void requests_of_others_that_are_announced_all_the_time_are_not_waited_for_for_long() {
  Case test(rows(64));
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) {
      test.arrivals->announce();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  test.request();
  test.worker.wait_sent(1);
  is_over = true;
  other.join();
}

void a_request_waits_no_longer_than_the_delay() {
  Case test(rows(8, {}, milliseconds(1)));
  test.request();
  test.worker.wait_sent(1);
  EXPECT(test.worker.reason() == Reason::delay);
}

void requests_that_are_announced_are_waited_for() {
  Case test(patient(64));
  for (int request = 0; request < 4; ++request) test.arrivals->announce();
  for (int request = 0; request < 3; ++request) test.request();
  EXPECT(test.worker.sent().empty());
  test.request();
  EXPECT(test.worker.sent() == Sizes{4});
}

void a_share_of_those_that_are_announced_is_enough() {
  Case test(patient(64));
  for (int request = 0; request < 20; ++request) test.arrivals->announce();
  for (int request = 0; request < 8; ++request) test.request();
  EXPECT(test.worker.sent() == Sizes{8});
}

void requests_that_are_announced_and_do_not_come_are_not_waited_for_for_ever() {
  Case test(rows(64));
  test.arrivals->announce();
  test.arrivals->announce();
  test.request();
  test.worker.wait_sent(1);
  EXPECT(test.worker.sent() == Sizes{1});
  std::this_thread::sleep_for(milliseconds(30));  // longer than it takes to forget them
  test.worker.answer(test.scheduler);
  test.request();
  test.worker.wait_sent(2);
  EXPECT((test.worker.sent() == Sizes{1, 1}) && test.arrivals->count() == 0);
}

void requests_that_nobody_announced_do_not_count_against_others() {
  Case test(rows(64));
  test.request();
  test.arrivals->announce();
  test.arrivals->withdraw();
  test.arrivals->withdraw();
  EXPECT(test.arrivals->count() == 0);
}

void a_slow_callable_waits_a_moment_for_the_clients_that_it_has_answered() {
  Case test(rows(64));
  for (int request = 0; request < 4; ++request) test.request();
  const auto answered = std::chrono::steady_clock::now();
  test.worker.answer(test.scheduler, std::chrono::hours(1));
  test.worker.wait_sent(2);
  EXPECT(std::chrono::steady_clock::now() - answered >= milliseconds(20));  // for a fourth, which has not come
  EXPECT((test.worker.sent() == Sizes{1, 3}));
  for (int request = 0; request < 4; ++request) test.request();
  test.worker.answer(test.scheduler, milliseconds(1));
  test.worker.wait_sent(3);
  EXPECT((test.worker.sent() == Sizes{1, 3, 4}));
}

void rows_beyond_all_preferred_sizes_leave_and_so_does_all_that_waits_when_the_delay_is_over() {
  Case test(rows(16, {4}, std::chrono::hours(1)));
  test.request(3);
  EXPECT(test.worker.sent().empty());
  test.request(2);
  EXPECT(test.worker.sent() == Sizes{2});
  Case late(rows(16, {2}, milliseconds(1)));
  late.request();
  late.worker.wait_sent(1);
  late.request();
  std::this_thread::sleep_for(milliseconds(2));  // longer than the delay
  late.request(3);
  late.worker.answer(late.scheduler);
  EXPECT((late.worker.sent() == Sizes{1, 2}));
}

void a_lost_worker_gets_requests_only_if_there_is_no_other() {
  Case test(rows(8));
  Notes other;
  test.worker.lost = true;
  test.scheduler.add(other);
  test.request();
  test.request();
  EXPECT(test.worker.sent().empty() && other.sent() == Sizes{1});
  other.answer(test.scheduler);
  EXPECT(test.worker.sent().empty() && (other.sent() == Sizes{1, 1}));
  other.lost = true;
  test.request();
  EXPECT(test.worker.sent() == Sizes{1});
  test.scheduler.remove(other);
}

void another_worker_gets_at_once_what_one_that_has_gone_gives_back() {
  struct Gone : Notes {
    bool is_free() override { return !has_gone && Notes::is_free(); }
    void send(NextBatch batch) override {
      if (!scheduler) return Notes::send(std::move(batch));
      has_gone = true;
      std::vector<QueuedRequest> back(batch.requests.size());
      for (size_t request = 0; request < back.size(); ++request) back[request].request = batch.requests[request];
      scheduler->requeue(std::move(back));
      scheduler->answered(batch.record, {});
    }
    Scheduler* scheduler = nullptr;
    bool has_gone = false;
  };
  Case test(rows(8));
  Gone leaving;
  test.scheduler.add(leaving);
  for (int request = 0; request < 4; ++request) test.request();
  EXPECT(test.worker.sent() == Sizes{1} && leaving.sent() == Sizes{1});
  test.worker.rest(test.scheduler);
  leaving.scheduler = &test.scheduler;
  leaving.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 2} && leaving.sent() == Sizes{1}));
  test.scheduler.remove(leaving);
}

void a_delay_is_kept_while_a_worker_does_not_read() {
  struct Stuck : Notes {
    void send(NextBatch batch) override {
      Notes::send(std::move(batch));
      std::unique_lock lock(reading);
    }
    std::mutex reading;
  };
  Case test(rows(8, {}, milliseconds(1)));
  Stuck stuck;
  std::unique_lock reading(stuck.reading);
  test.scheduler.add(stuck);
  test.request();
  test.worker.wait_sent(1);
  test.request();  // for the one that is stuck, on a timer
  stuck.wait_sent(1);
  test.worker.answer(test.scheduler);
  test.request();
  test.worker.wait_sent(2);
  reading.unlock();
  test.scheduler.remove(stuck);
}

void workers_share_the_queue() {
  Case test(rows(8));
  Notes other;
  test.scheduler.add(other);
  for (int request = 0; request < 4; ++request) test.request();
  EXPECT(test.worker.sent() == Sizes{1} && other.sent() == Sizes{1});
  other.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1} && other.sent() == Sizes{1, 2}));
  test.scheduler.remove(other);
  test.request();
  other.answer(test.scheduler);
  EXPECT((other.sent() == Sizes{1, 2}));
  test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 1}));
}

void a_request_is_refused_if_those_before_it_take_too_long() {
  Case test(in_time(1, std::chrono::minutes(5)));
  EXPECT(!test.request());
  test.worker.answer(test.scheduler, std::chrono::minutes(2));
  EXPECT(!test.request());                                        // which takes two minutes ...
  EXPECT(!test.request());                                        // ... and this one four, ...
  EXPECT(test.request() && test.request() && test.waiting == 1);  // ... and these more than five
  EXPECT((test.worker.sent() == Sizes{1, 1}));
}

void a_request_behind_one_that_takes_most_of_the_time_is_refused() {
  Case test(in_time(128, std::chrono::seconds(100)));
  for (const uint64_t rows : {1, 4}) {
    EXPECT(!test.request(rows));
    test.worker.answer(test.scheduler, std::chrono::seconds(rows));
  }
  EXPECT(!test.request(90));
  EXPECT(test.request(20) && !test.request(2));
}

void a_request_that_finds_a_free_worker_is_never_refused_nor_any_if_none_can_be_in_time() {
  Case test(in_time(64, milliseconds(50)));
  EXPECT(!test.request(8));
  test.worker.answer(test.scheduler, milliseconds(40));
  EXPECT(!test.request(64));  // for which nothing is known
  test.worker.answer(test.scheduler, milliseconds(500));
  EXPECT(!test.request(64));
  Case never(in_time(1, milliseconds(50)));
  EXPECT(!never.request());
  never.worker.answer(never.scheduler, milliseconds(500));
  for (int request = 0; request < 9; ++request) EXPECT(!never.request());
}

void a_batch_is_at_most_four_times_as_large_as_any_before_and_takes_half_of_the_time() {
  Case test(in_time(64, std::chrono::seconds(10)));
  test.request();
  for (int request = 0; request < 50; ++request) test.request();
  for (int batch = 0; batch < 3; ++batch) test.worker.answer(test.scheduler, std::chrono::microseconds(900));
  EXPECT((test.worker.sent() == Sizes{1, 4, 16, 30}));
  Case linear(in_time(64, std::chrono::seconds(10)));
  linear.request();
  for (int request = 0; request < 10; ++request) EXPECT(!linear.request());
  for (const int seconds : {1, 4, 4}) {
    const size_t before = linear.worker.sent().size();
    linear.worker.answer(linear.scheduler, std::chrono::seconds(seconds));
    linear.worker.wait_sent(before + 1);
  }
  EXPECT((linear.worker.sent() == Sizes{1, 4, 4, 2}));  // four seconds of ten
}

void a_late_request_leaves_its_place_to_others_only_if_they_are_more_than_a_batch() {
  Case test(in_time(2, milliseconds(20)));
  test.request();
  test.worker.answer(test.scheduler, milliseconds(2));
  for (int request = 0; request < 5; ++request) EXPECT(!test.request());
  std::this_thread::sleep_for(milliseconds(25));  // longer than the target
  test.worker.answer(test.scheduler, milliseconds(2));
  test.worker.wait_sent(3);
  EXPECT(test.refused == 2 && test.worker.adopted == 2 && (test.worker.sent() == Sizes{1, 1, 2}));
}

void a_batch_costs_no_more_than_allowed_and_has_requests_of_similar_costs() {
  BatchPolicy policy = rows(8);
  policy.max_cost = 100;
  Case test(policy);
  test.request();
  for (const uint64_t cost : {50, 10, 200, 12, 49, 11, 10}) test.request(1, "", cost);
  for (int batch = 0; batch < 3; ++batch) test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 2, 4, 1}));
  EXPECT(test.waiting == 0);
}

void a_costly_request_is_sent_in_time_though_cheap_ones_keep_coming() {
  BatchPolicy policy = rows(64, {8});
  policy.max_cost = 1000;
  Case test(policy);
  test.request(1, "", 10);
  for (int request = 0; request < 20; ++request) test.request(1, "", 10);
  test.request(1, "", 500);
  for (int batch = 0; batch < 5; ++batch) {
    test.worker.answer(test.scheduler);
    for (int request = 0; request < 8; ++request) test.request(1, "", 10);
  }
  EXPECT(test.worker.highest_cost >= 500);
}

void requests_whose_padding_would_take_much_memory_are_not_merged() {
  BatchPolicy policy = rows(8);
  policy.max_cost = 100;
  Case test(policy);
  test.request();
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{40} << 20, uint64_t{40} << 20, uint64_t{1}}) {
    std::vector<QueuedRequest> one(1, test.make());
    one[0].row_bytes = bytes;
    test.scheduler.enqueue(std::move(one));
  }
  for (int batch = 0; batch < 2; ++batch) test.worker.answer(test.scheduler);
  EXPECT((test.worker.sent() == Sizes{1, 3, 1}));
}

}  // namespace

int main() {
  a_request_that_finds_a_free_worker_leaves_and_what_arrives_meanwhile_is_the_next_batch();
  a_batch_has_no_more_rows_than_allowed_and_requests_keep_their_order();
  requests_of_different_shapes_are_not_merged();
  a_request_that_is_repeated_alone_comes_before_the_others();
  a_batch_of_a_preferred_size_leaves_and_others_wait_for_the_delay();
  cancelled_requests_take_no_room_in_a_batch();
  requests_of_others_that_are_announced_all_the_time_are_not_waited_for_for_long();
  a_request_waits_no_longer_than_the_delay();
  requests_that_are_announced_are_waited_for();
  a_share_of_those_that_are_announced_is_enough();
  requests_that_are_announced_and_do_not_come_are_not_waited_for_for_ever();
  requests_that_nobody_announced_do_not_count_against_others();
  a_slow_callable_waits_a_moment_for_the_clients_that_it_has_answered();
  rows_beyond_all_preferred_sizes_leave_and_so_does_all_that_waits_when_the_delay_is_over();
  a_lost_worker_gets_requests_only_if_there_is_no_other();
  another_worker_gets_at_once_what_one_that_has_gone_gives_back();
  a_delay_is_kept_while_a_worker_does_not_read();
  workers_share_the_queue();
  a_request_is_refused_if_those_before_it_take_too_long();
  a_request_behind_one_that_takes_most_of_the_time_is_refused();
  a_request_that_finds_a_free_worker_is_never_refused_nor_any_if_none_can_be_in_time();
  a_batch_is_at_most_four_times_as_large_as_any_before_and_takes_half_of_the_time();
  a_late_request_leaves_its_place_to_others_only_if_they_are_more_than_a_batch();
  a_batch_costs_no_more_than_allowed_and_has_requests_of_similar_costs();
  a_costly_request_is_sent_in_time_though_cheap_ones_keep_coming();
  requests_whose_padding_would_take_much_memory_are_not_merged();
}
