#include "loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

#include "../frames/failure.h"
#include "edge.h"
#include "upstream.h"

namespace pytriton::http {

namespace {

constexpr size_t kEvents = 256;
constexpr uint32_t kConnectionEvents = EPOLLIN | EPOLLRDHUP | EPOLLET;
constexpr size_t kMostDeferred = 64;
constexpr size_t kFreeExchanges = 256;
constexpr size_t kKeptBytes = 64 << 10;  // of the buffer of an exchange that is not in use

}  // namespace

Loop::Loop(Edge& edge)
    : edge_(edge),
      access_log_(edge.access_log()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      metrics_(edge.config().buckets.histogram_ns) {
  if (!epoll_ || !wake_) throw Failure(Code::unavailable, "the HTTP endpoint has no descriptors for its loop");
  now_ = now_ns();
  upstream_ = std::make_unique<Upstream>(*this, edge.config().upstream);
  application_ = std::make_unique<Upstream>(*this, edge.config().application);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

Loop::~Loop() {
  connections_.clear();
  retired_.clear();
  while (free_) {
    HttpExchange* const next = free_->next_free;
    free_->release();
    free_ = next;
  }
}

void Loop::run() {
  thread_ = std::this_thread::get_id();
  ::pthread_setname_np(::pthread_self(), "pytriton-loop");
  std::array<epoll_event, kEvents> events;
  while (!is_stopped_) {
    is_sleeping_ = true;
    const bool has_work_now = has_work() || !to_read_.empty();
    if (has_work_now) is_sleeping_ = false;
    const int count = epoll_wait(epoll_.get(), events.data(), kEvents, has_work_now ? 0 : timeout_ms());
    is_sleeping_ = false;
    now_.store(now_ns(), std::memory_order_relaxed);
    for (int index = 0; index < count; ++index) {
      const epoll_event& event = events[static_cast<size_t>(index)];
      if (auto* const pollable = static_cast<Pollable*>(event.data.ptr)) {
        pollable->ready(event.events);
      } else {
        uint64_t ignored;
        static_cast<void>(!::read(wake_.get(), &ignored, sizeof ignored));
      }
    }
    run_deferred();
    handle_notified();
    handle_tasks();
    const auto again = std::move(to_read_);
    to_read_.clear();
    for (ClientConnection* each : again) each->continue_reading();
    handle_timers();
    run_deferred();
    retired_.clear();
    if (!drained_.empty() && connections_.size() == controls_ + lingering)
      for (const auto& drained : std::exchange(drained_, {})) drained();
  }
  is_stopped_ = false;
}

void Loop::stop() {
  is_stopped_ = true;
  wake();
}

void Loop::post(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    has_tasks_ = true;
  }
  wake();
}

void Loop::notify(Notifiable& notifiable) {
  Notifiable* top = notified_.load(std::memory_order_relaxed);
  do notifiable.next_ = top;
  while (!notified_.compare_exchange_weak(top, &notifiable));
  wake();
}

bool Loop::is_current() const { return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

void Loop::wake() {
  if (!is_sleeping_.exchange(false)) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

bool Loop::watch(int descriptor, Pollable& pollable, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &pollable;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Loop::change(int descriptor, Pollable& pollable, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &pollable;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void Loop::unwatch(int descriptor) const { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

void Loop::watch_output(ClientConnection& connection, bool is_watched) const {
  change(connection.descriptor(), connection, is_watched ? kConnectionEvents | EPOLLOUT : kConnectionEvents);
}

void Loop::after(int64_t delay_ns, std::function<void()> task) {
  timers_.emplace(coarse_now() + delay_ns, std::move(task));
}

void Loop::defer(std::function<void()> task) {
  deferred_.push_back(std::move(task));
  if (deferred_.size() == kMostDeferred) run_deferred();
}

void Loop::run_deferred() {
  called_.swap(deferred_);
  for (const auto& task : called_) task();
  called_.clear();
}

void Loop::read_later(ClientConnection& connection) { to_read_.push_back(&connection); }

void Loop::add(std::shared_ptr<ClientConnection> connection) {
  ClientConnection& added = *connection;
  added.index = connections_.size();
  connections_.push_back(std::move(connection));
  open_ = connections_.size();
  if (added.is_control()) {
    ++controls_;
  } else {
    metrics_.open.add();
  }
  if (!watch(added.descriptor(), added, kConnectionEvents)) remove(added);  // the kernel has no memory for it
}

void Loop::replace(ClientConnection& connection, std::shared_ptr<ClientConnection> by) {
  to_read_.erase(std::remove(to_read_.begin(), to_read_.end(), &connection), to_read_.end());
  ClientConnection& added = *by;
  added.index = connection.index;
  change(added.descriptor(), added, kConnectionEvents);  // which tells of what has come again
  retired_.push_back(std::exchange(connections_[added.index], std::move(by)));
  read_later(added);
}

void Loop::remove(ClientConnection& connection) {
  unwatch(connection.descriptor());
  to_read_.erase(std::remove(to_read_.begin(), to_read_.end(), &connection), to_read_.end());
  if (connection.is_lingering() && !connection.is_control()) --lingering;
  const size_t index = connection.index;
  std::shared_ptr<ClientConnection> removed = std::move(connections_[index]);
  if (index + 1 < connections_.size()) {
    connections_[index] = std::move(connections_.back());
    connections_[index]->index = index;
  }
  connections_.pop_back();
  open_ = connections_.size();
  if (connection.is_control()) {
    --controls_;
  } else {
    metrics_.open.subtract();
  }
  removed->close();
  retired_.push_back(std::move(removed));
}

HttpExchange* Loop::take_exchange(const std::shared_ptr<Share>& share) {
  HttpExchange* taken = free_;
  if (taken) {
    free_ = taken->next_free;
    --free_count_;
  } else {
    taken = new HttpExchange(edge_.config().limits);
  }
  taken->open(share);
  return taken;
}

size_t Loop::close_idle(size_t most) {
  std::vector<ClientConnection*> idle;
  for (const auto& each : connections_)
    if (each->is_idle()) idle.push_back(each.get());
  const size_t count = std::min(most, idle.size());
  std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end(),
                    [](const ClientConnection* one, const ClientConnection* other) {
                      return one->idle_since() < other->idle_since();
                    });
  idle.resize(count);
  for (ClientConnection* const each : idle) each->evict();
  return count;
}

void Loop::give_back(HttpExchange* exchange) {
  if (!exchange->is_sole_reference() || free_count_ == kFreeExchanges) {
    exchange->on_disconnect(nullptr);
    exchange->release();
    return;
  }
  exchange->reset();
  exchange->size = 0;
  if (exchange->buffer.capacity() > kKeptBytes) exchange->buffer.clear();
  exchange->open(nullptr);
  exchange->next_free = free_;
  free_ = exchange;
  ++free_count_;
}

void Loop::drain(std::function<void()> drained) {
  is_draining_ = true;
  drained_.push_back(std::move(drained));
  drain_connections();
  drain_later();
}

void Loop::drain_later() {
  constexpr int64_t kMargin_ns = kFresh_ns / 5;  // the loop's clock is late
  after(kFresh_ns + kMargin_ns, [this] { drain_connections(); });
}

void Loop::drain_connections() {
  for (size_t index = connections_.size(); index-- > 0;) connections_[index]->drain();
}

void Loop::close_upstreams() {
  upstream_.reset();
  application_.reset();
}

int Loop::timeout_ms() const {
  int64_t next = connections_.empty() ? -1 : checked_at_ + kSecond_ns;
  if (!timers_.empty() && (next < 0 || timers_.begin()->first < next)) next = timers_.begin()->first;
  if (next < 0) return -1;
  const int64_t rest = next - now_ns();
  return rest <= 0 ? 0 : static_cast<int>(rest / kMillisecond_ns + 1);
}

void Loop::handle_notified() {
  Notifiable* last = notified_.exchange(nullptr);
  Notifiable* first = nullptr;
  while (last) {  // in the order in which they came
    Notifiable* const next = last->next_;
    last->next_ = first;
    first = last;
    last = next;
  }
  while (first) {
    Notifiable* const next = first->next_;
    first->handle();
    first = next;
  }
}

void Loop::handle_tasks() {
  if (!has_tasks_) return;
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks.swap(tasks_);
    has_tasks_ = false;
  }
  for (const auto& task : tasks) task();
}

void Loop::handle_timers() {
  const int64_t now = coarse_now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
  if (now - checked_at_ < kSecond_ns) return;
  checked_at_ = now;
  for (size_t index = connections_.size(); index-- > 0;) connections_[index]->check_deadline(now);
}

}  // namespace pytriton::http
