#include "forward.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "edge.h"
#include "error_response.h"
#include "response_parser.h"
#include "router.h"

namespace pytriton::http {

namespace {

constexpr size_t kReceivedAtOnce = 64 << 10, kMostAtOnce = 1 << 20;
constexpr size_t kPausingUnsent = 1 << 20;  // bytes that wait for the client before no more are read
constexpr int64_t kRetry_ns = 20 * kMillisecond_ns, kConnectTimeout_ns = 10 * kSecond_ns;

bool is_idempotent(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "PUT" || method == "DELETE";
}

void append_line(std::string& head, std::string_view name, std::string_view value) {
  head += name;
  head += ": ";
  head += value;
  head += "\r\n";
}

// Whether one of the Connection headers names it.
bool is_named(const Request& request, std::string_view name) {
  for (const Header& header : request.headers) {
    if (!equals_ignoring_case(header.name, "connection")) continue;
    const std::string folded = in_lower_case(name);
    for (std::string_view rest = header.value; !rest.empty();) {
      const size_t comma = rest.find(',');
      const std::string_view token = trimmed(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (equals_ignoring_case(token, folded)) return true;
    }
  }
  return false;
}

// The head for the application: that of the client, without what belongs to the connection.
std::string head_for_application(const Request& request) {
  std::string head, forwarded;
  bool has_protocol = false;
  head += request.method;
  head += ' ';
  head += request.target;
  head += " HTTP/1.1\r\n";
  for (const Header& header : request.headers) {
    if (is_hop_by_hop(header.name) || equals_ignoring_case(header.name, "content-length") ||
        equals_ignoring_case(header.name, "expect") || is_named(request, header.name))
      continue;
    if (equals_ignoring_case(header.name, "x-forwarded-for")) {
      forwarded += header.value;
      forwarded += ", ";
      continue;
    }
    if (equals_ignoring_case(header.name, "x-forwarded-proto")) has_protocol = true;
    append_line(head, header.name, header.value);
  }
  if (request.header("host").empty()) append_line(head, "Host", "localhost");
  if (!request.peer.empty()) append_line(head, "X-Forwarded-For", forwarded.append(request.peer));
  if (!has_protocol) append_line(head, "X-Forwarded-Proto", request.is_encrypted ? "https" : "http");
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    append_line(head, "Content-Length", std::to_string(request.body.size()));
  return head += "\r\n";
}

std::string head_for_server(std::string_view method, std::string_view target, std::string_view headers, size_t size) {
  std::string head;
  head += method;
  head += ' ';
  head += target;
  head += " HTTP/1.1\r\nHost: localhost\r\n";
  head += headers;
  if (method == "POST") {
    append_line(head, "Content-Type", "application/json");
    append_line(head, "Content-Length", std::to_string(size));
  }
  return head += "\r\n";
}

// One request, from its connection to the process to its answer; deletes itself then.
class Forward final : public Pollable {
 public:
  Forward(Loop& loop, Upstream& upstream, HttpExchange& exchange, std::string&& head, std::string_view body)
      : loop_(loop),
        upstream_(upstream),
        exchange_(exchange),
        reference_(std::in_place, exchange),
        parser_(exchange.request().method == "HEAD"),
        head_(std::move(head)),
        body_(body),
        started_at_(loop.coarse_now()) {}

  void start() {
    exchange_.on_disconnect([this] {
      is_cancelled_ = true;
      if (!is_in_turn_) end();
    });
    connect(true);
  }

  void ready(uint32_t events) override {
    is_in_turn_ = true;
    if (events & EPOLLOUT) send();
    if (!is_ended_ && (events & ~static_cast<uint32_t>(EPOLLOUT))) {
      is_readable_ = true;
      receive();
    }
    end_turn();
  }

 private:
  template <typename Call>
  void later(int64_t delay_ns, Call call) {
    loop_.after(delay_ns, [alive = std::weak_ptr<bool>(alive_), this, call] {
      if (!alive.lock()) return;
      is_in_turn_ = true;
      call();
      end_turn();
    });
  }

  void end_turn() {
    is_in_turn_ = false;
    if (is_cancelled_) end();
  }

  void connect(bool may_be_used) {
    connection_ = upstream_.connect(may_be_used);
    if (!connection_) {
      const int error = errno;
      if (!upstream_.may_come(error) || loop_.coarse_now() - started_at_ > kConnectTimeout_ns)
        return fail(503, "the process that answers this path cannot be reached");
      return later(kRetry_ns, [this] { connect(true); });
    }
    connection_->user = this;
    sent_ = 0;
    send();
  }

  void send() {
    while (sent_ < head_.size() + body_.size()) {
      const size_t of_head = std::min(sent_, head_.size()), of_body = sent_ - of_head;
      const iovec parts[] = {{const_cast<char*>(head_.data()) + of_head, head_.size() - of_head},
                             {const_cast<char*>(body_.data()) + of_body, body_.size() - of_body}};
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(parts);
      message.msg_iovlen = 2;
      const ssize_t sent = ::sendmsg(connection_->descriptor(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return watch_output(true);
      if (sent < 0) {
        is_sending_failed_ = true;  // an answer may be there all the same, such as 413
        is_readable_ = true;
        return receive();
      }
      sent_ += static_cast<size_t>(sent);
    }
    watch_output(false);
  }

  void watch_output(bool is_watched) {
    if (is_watched == watches_output_) return;
    watches_output_ = is_watched;
    const uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    loop_.change(connection_->descriptor(), *connection_, is_watched ? events | EPOLLOUT : events);
  }

  void receive() {
    char data[kReceivedAtOnce];
    size_t total = 0;
    while (is_readable_ && !is_ended_ && !is_paused()) {
      const ssize_t received = ::recv(connection_->descriptor(), data, sizeof data, MSG_DONTWAIT);
      if (received < 0 && errno == EINTR) continue;
      if (received < 0 && errno == EAGAIN) {
        is_readable_ = false;
        break;
      }
      if (received <= 0) return connection_closed(received < 0);
      has_answer_ = true;
      if (!parser_.parse(data, static_cast<size_t>(received)))
        return fail(502, "the process that answers this path sent something else than HTTP");
      if (parser_.is_complete()) return complete();
      total += static_cast<size_t>(received);
      if (total > kMostAtOnce) {  // others have their turn
        send_received();
        return later(0, [this] { receive(); });
      }
    }
    send_received();
  }

  bool is_paused() const { return is_begun_ && exchange_.unsent() > kPausingUnsent; }

  // What has come so far.
  void send_received() {
    if (is_ended_ || !parser_.has_head()) return;
    if (!is_begun_) {
      is_begun_ = true;
      Response head = make_head();
      head.content_length = parser_.content_length();
      exchange_.drained = [this] {
        is_in_turn_ = true;
        receive();
        end_turn();
      };
      exchange_.begin(std::move(head));
    }
    if (!parser_.body.empty()) exchange_.write(std::exchange(parser_.body, {}));
  }

  Response make_head() const {
    Response head;
    head.status = parser_.status();
    head.content_type = {};
    head.headers = parser_.headers();
    return head;
  }

  void complete() {
    const bool is_whole = !is_begun_ && exchange_.request().method != "HEAD";
    if (parser_.keeps_alive() && sent_ == head_.size() + body_.size()) {
      watch_output(false);
      upstream_.keep(std::move(connection_));
    }
    if (is_whole) {
      Response response = make_head();
      response.body = std::move(parser_.body);
      detach();
      exchange_.send(std::move(response));
    } else {
      send_received();
      detach();
      exchange_.end();
    }
    reference_.reset();
  }

  // The process has closed the connection.
  void connection_closed(bool is_reset) {
    if (parser_.finish()) return complete();
    const bool may_repeat = !has_answer_ && connection_->is_reused &&
                            (is_reset || is_sending_failed_ ||
                             is_idempotent(exchange_.request().method));  // it was not read, or may be twice
    if (!may_repeat) return fail(502, "the process that answers this path has ended without an answer");
    upstream_.drop(std::move(connection_));
    is_sending_failed_ = is_readable_ = watches_output_ = false;
    connect(false);
  }

  void fail(int status, const char* message) {
    if (is_ended_) return;
    detach();
    if (is_begun_) {
      exchange_.abort();
    } else {
      exchange_.send(error_response(status, message));
    }
    reference_.reset();
  }

  // The client has gone.
  void end() {
    if (is_ended_) return;
    detach();
    exchange_.abort();
    reference_.reset();
  }

  // Nothing comes any more: to be called before the exchange is complete, as the loop may use it for another request.
  void detach() {
    if (is_ended_) return;
    is_ended_ = true;
    is_cancelled_ = false;
    alive_.reset();
    exchange_.drained = nullptr;
    exchange_.on_disconnect(nullptr);
    if (connection_) upstream_.drop(std::move(connection_));
    loop_.retire(std::unique_ptr<Forward>(this));
  }

  Loop& loop_;
  Upstream& upstream_;
  HttpExchange& exchange_;
  std::optional<ExchangeReference> reference_;
  ResponseParser parser_;
  const std::string head_;
  const std::string_view body_;  // the exchange's
  const int64_t started_at_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unique_ptr<UpstreamConnection> connection_;
  size_t sent_ = 0;
  bool is_in_turn_ = false, is_cancelled_ = false, is_ended_ = false, is_begun_ = false;
  bool is_readable_ = false, is_sending_failed_ = false, has_answer_ = false, watches_output_ = false;
};

}  // namespace

void forward_to_application(Loop& loop, HttpExchange& exchange) {
  const Request& request = exchange.request();
  (new Forward(loop, loop.application(), exchange, head_for_application(request), request.body))->start();
}

void forward_to_server(Loop& loop, HttpExchange& exchange, std::string_view target, std::string_view headers) {
  const Request& request = exchange.request();
  const std::string_view body = request.method == "POST" ? request.body : std::string_view();
  std::string head = head_for_server(request.method, target, headers, body.size());
  (new Forward(loop, loop.upstream(), exchange, std::move(head), body))->start();
}

}  // namespace pytriton::http
