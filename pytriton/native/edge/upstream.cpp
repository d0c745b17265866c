#include "upstream.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pytriton::http {

namespace {

constexpr size_t kMostIdle = 64;
// Longer than between two requests of a busy client. When it is signalled, the server's endpoint waits for the end of
// each connection, before it tells anybody that it stops.
constexpr int64_t kIdle_ns = 200 * kMillisecond_ns;

}  // namespace

void UpstreamConnection::ready(uint32_t events) {
  if (user) {
    user->ready(events);
  } else if (events & ~static_cast<uint32_t>(EPOLLOUT)) {  // closed, or sends what nobody has asked for
    upstream_.drop_idle(*this);
  }
}

Upstream::~Upstream() = default;

std::unique_ptr<UpstreamConnection> Upstream::connect(bool may_be_used) {
  if (may_be_used && !idle_.empty()) {
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    connection->is_reused = true;
    return connection;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return nullptr;
  }
  std::memcpy(address.sun_path, path_.data(), path_.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return nullptr;
  was_connected_ = true;
  auto connection = std::make_unique<UpstreamConnection>(*this, std::move(socket));
  loop_.watch(connection->descriptor(), *connection, EPOLLIN | EPOLLRDHUP | EPOLLET);
  return connection;
}

bool Upstream::may_come(int error) const {
  return error == EAGAIN || (!was_connected_ && (error == ENOENT || error == ECONNREFUSED));
}

void Upstream::keep(std::unique_ptr<UpstreamConnection> connection) {
  connection->user = nullptr;
  if (idle_.size() == kMostIdle) return drop(std::move(connection));
  connection->idle_since = loop_.coarse_now();
  idle_.push_back(std::move(connection));
  if (std::exchange(is_timed_, true)) return;
  loop_.after(kIdle_ns, [this] { expire(); });
}

void Upstream::expire() {
  is_timed_ = false;
  while (!idle_.empty() &&
         loop_.coarse_now() - idle_.front()->idle_since >= kIdle_ns) {  // which was used least recently
    auto expired = std::move(idle_.front());
    idle_.erase(idle_.begin());
    drop(std::move(expired));
  }
  if (idle_.empty()) return;
  is_timed_ = true;
  loop_.after(kIdle_ns, [this] { expire(); });
}

void Upstream::drop(std::unique_ptr<UpstreamConnection> connection) {
  connection->user = nullptr;
  loop_.unwatch(connection->descriptor());
  loop_.retire(std::move(connection));
}

void Upstream::drop_idle(const UpstreamConnection& connection) {
  const auto found =
      std::find_if(idle_.begin(), idle_.end(), [&](const auto& each) { return each.get() == &connection; });
  if (found == idle_.end()) return;  // dropped in this turn
  auto dropped = std::move(*found);
  idle_.erase(found);
  drop(std::move(dropped));
}

}  // namespace pytriton::http
