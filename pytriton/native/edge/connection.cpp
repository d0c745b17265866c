#include "connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "edge.h"
#include "error_response.h"
#include "router.h"

namespace pytriton::http {

namespace {

constexpr size_t kFirstRoom = 4 << 10, kMostRoom = 4 << 20;  // bytes to receive at once
constexpr size_t kSmallRoom = 512;
constexpr size_t kSmallBuffer = 128 << 10;  // which is not refused, whatever others hold
constexpr uint64_t kSmallBody = 64 << 10;   // which comes before anybody asks what it is for
constexpr unsigned kMostTurns = 16;
constexpr int64_t kLinger_ns = 2 * kSecond_ns;
constexpr int64_t kReleased_ns = kSecond_ns;  // idle connections keep their buffers as long

// Whether a connection is one of HTTP/2, by what was agreed on with TLS, or by its first bytes; none: these do not
// tell yet.
std::optional<bool> is_http_2(std::string_view agreed, std::string_view received) {
  constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  if (!agreed.empty()) return agreed == "h2";
  const size_t size = std::min(received.size(), kPreface.size());
  if (received.substr(0, size) != kPreface.substr(0, size)) return false;
  if (size < kPreface.size()) return std::nullopt;
  return true;
}

}  // namespace

Connection::Connection(Loop& loop, Transport transport, std::string peer, Entrance entrance)
    : loop_(loop),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      entrance_(entrance),
      share_(loop.edge().account().share_of(peer_)),
      may_be_http_2_(entrance == Entrance::server && loop.edge().config().has_one_port()),
      since_(loop.coarse_now()) {}

Connection::~Connection() {
  if (exchange_) exchange_->release();
}

void Connection::ready(uint32_t events) {
  if (is_removed_) return;
  if ((events & EPOLLOUT) && is_dispatched_ && exchange_->is_busy()) exchange_->flush();
  if (events & (EPOLLHUP | EPOLLERR)) is_broken_ = true;
  if (events & EPOLLRDHUP) is_half_closed_ = true;
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    is_readable_ = true;
    proceed();
  }
}

void Connection::resume() {
  exchange_->end_claim();
  if (complete() == Step::go_on) serve();
}

void Connection::continue_reading() {
  if (!is_removed_) proceed();
}

void Connection::drain() {
  if (is_control() || is_lingering_) return;
  if (is_dispatched_) {
    if (!exchange_->is_complete()) return;  // the answer says that it is the last
    proceed();
  }
  if (is_removed_ || is_lingering_ || is_dispatched_) return;
  is_readable_ = true;  // a request may have come that no event has told of
  serve();
  if (is_removed_ || is_dispatched_ || is_lingering_ || (exchange_ && exchange_->size)) return;
  if (loop_.coarse_now() - since_ >= Loop::kFresh_ns) remove();
}

void Connection::proceed() {
  if (is_lingering_) return discard();
  if (is_dispatched_) {
    if (!exchange_->claim()) {
      if (is_broken_) exchange_->disconnect();
      return;
    }
    if (complete() != Step::go_on) return;
  }
  serve();
}

void Connection::serve() {
  turns_ = 0;
  turn_bytes_ = 0;
  Step step = Step::go_on;
  while (step == Step::go_on) {
    if (has_unparsed_) {
      step = parse();
    } else if (is_readable_) {
      step = receive();
    } else {
      step = Step::wait;
    }
  }
}

Connection::Step Connection::receive() {
  if (is_broken_) {
    remove();
    return Step::closed;
  }
  if (!exchange_) {
    exchange_ = loop_.take_exchange(share_);
  }
  if (const Refusal refusal = make_room(); refusal != Refusal::none) return refuse(busy_response(refusal));
  if (exchange_->buffer.capacity() > kSmallBuffer) loop_.run_deferred();  // others do not wait while it is read
  const size_t room = exchange_->buffer.capacity() - exchange_->size;
  const ssize_t received = transport_.receive(exchange_->buffer.data() + exchange_->size, room);
  if (received < 0 && errno == EAGAIN) {
    is_readable_ = false;
    return Step::wait;
  }
  if (received <= 0) {
    remove();
    return Step::closed;
  }
  if (exchange_->size == 0) since_ = loop_.coarse_now();
  exchange_->size += static_cast<size_t>(received);
  received_ += received;
  loop_.metrics().received.add(static_cast<uint64_t>(received));
  // After fewer bytes than asked for, an event tells of more, but not of an end that is there already.
  if (static_cast<size_t>(received) < room && !is_half_closed_ && !transport_.is_encrypted()) is_readable_ = false;
  has_unparsed_ = true;
  turn_bytes_ += static_cast<size_t>(received);
  if (turn_bytes_ < kMostRoom) return Step::go_on;
  loop_.read_later(*this);
  return Step::wait;
}

Refusal Connection::make_room() {
  Buffer& buffer = exchange_->buffer;
  const size_t size = exchange_->size;
  if (buffer.capacity() == 0 && exchange_->resize(kFirstRoom, false) != Refusal::none) return Refusal::all;
  const size_t wanted = exchange_->parser.wanted(size);
  const size_t room = buffer.capacity() - size;
  if (room >= wanted && (room >= kSmallRoom || wanted > 1)) return Refusal::none;
  // All that was announced, up to a bound: a client that sends nothing more shall not cost its announcement.
  const size_t capacity = std::max(size + std::min(wanted, std::max(size, kSmallBuffer)), size + kSmallRoom);
  return exchange_->resize(capacity, capacity > kSmallBuffer);
}

Connection::Step Connection::parse() {
  has_unparsed_ = false;
  HttpExchange& exchange = *exchange_;
  if (may_be_http_2_) {
    const auto found = is_http_2(transport_.agreed_protocol(), {exchange.buffer.data(), exchange.size});
    if (!found) return Step::go_on;
    may_be_http_2_ = false;
    if (*found) return hand_over();
  }
  const bool had_head = exchange.parser.has_head();
  switch (exchange.parser.parse(exchange.buffer.data(), exchange.size)) {
    case RequestParser::Progress::head:
      return Step::go_on;
    case RequestParser::Progress::body:
      if (entrance_ == Entrance::metrics) return refuse(error_response(413, "requests for metrics have no body"));
      if (!is_admitted_ && exchange.parser.announced() > kSmallBody && admit() != Step::go_on) return Step::wait;
      if (!had_head && exchange.parser.expects_continue()) {
        transport_.announce("HTTP/1.1 100 Continue\r\n\r\n");  // without it, the client sends its body later
      }
      return Step::go_on;
    case RequestParser::Progress::failed:
      return refuse(error_response(exchange.parser.status(), exchange.parser.reason()));
    case RequestParser::Progress::complete:
      if (!is_admitted_ && exchange.parser.announced() > kSmallBody && admit() != Step::go_on) return Step::wait;
      return dispatch();
  }
  return Step::wait;
}

Connection::Step Connection::hand_over() {
  is_removed_ = true;
  const std::shared_ptr<ClientConnection> connection =
      make_grpc_connection(loop_, std::move(transport_), peer_, std::string(exchange_->buffer.data(), exchange_->size));
  loop_.give_back(std::exchange(exchange_, nullptr));
  loop_.replace(*this, connection);
  if (loop_.is_draining()) {
    connection->drain();
    loop_.drain_later();
  }
  return Step::closed;
}

// What a large body is for decides whether it is received: before it has come.
Connection::Step Connection::admit() {
  is_admitted_ = true;
  RequestParser& parser = exchange_->parser;
  Request head;
  parser.fill(head, exchange_->buffer.data());
  head.body = {};
  Admission admission = http::admit(loop_, head, entrance_);
  if (admission.refusal) return refuse(std::move(*admission.refusal));
  if (parser.announced() > admission.most_body) return refuse(error_response(413, "the request's body is too large"));
  parser.set_most_body(admission.most_body);
  return Step::go_on;
}

Connection::Step Connection::dispatch() {
  HttpExchange& exchange = *exchange_;
  const bool has_more = exchange.size > exchange.parser.end();
  const bool keeps_alive = exchange.parser.keeps_alive();
  is_dispatched_ = true;
  exchange.dispatch({&loop_, this, &transport_, peer_, transport_.is_encrypted(), keeps_alive},
                    has_more || is_readable_ || !keeps_alive);
  {
    const ExchangeReference reference(exchange);
    route(loop_, exchange, entrance_);
  }
  if (!exchange.is_complete()) return Step::wait;
  if (++turns_ < kMostTurns) return complete();
  loop_.read_later(*this);
  return Step::wait;
}

// Makes the connection ready for the next request.
Connection::Step Connection::complete() {
  is_dispatched_ = is_admitted_ = false;
  may_be_unread_ = true;
  HttpExchange* const done = exchange_;
  if (done->is_gone() || is_broken_) {
    remove();
    return Step::closed;
  }
  if (!done->keeps_alive()) return linger();
  if (loop_.is_draining() && !is_control()) loop_.drain_later();  // the answer did not say that it is the last
  const size_t end = done->parser.end(), rest = done->size - end;
  since_ = done->answered_at();
  if (done->is_sole_reference()) {
    if (rest) std::memmove(done->buffer.data(), done->buffer.data() + end, rest);
    done->reset();
  } else {  // somebody still reads the request
    exchange_ = loop_.take_exchange(share_);
    if (exchange_->resize(std::max(rest, kFirstRoom), false) != Refusal::none) {
      loop_.give_back(done);
      remove();
      return Step::closed;
    }
    if (rest) std::memcpy(exchange_->buffer.data(), done->buffer.data() + end, rest);
    loop_.give_back(done);
  }
  exchange_->size = rest;
  has_unparsed_ = rest > 0;
  return Step::go_on;
}

Connection::Step Connection::refuse(Response&& response) {
  is_dispatched_ = true;
  exchange_->dispatch({&loop_, this, &transport_, peer_, transport_.is_encrypted(), false}, false);
  exchange_->send(std::move(response));
  return Step::wait;  // the loop is told of the end, as the connection is closed then
}

Connection::Step Connection::linger() {
  is_lingering_ = true;
  if (!is_control()) ++loop_.lingering;
  since_ = loop_.coarse_now();
  // A client of gRPC that finds the socket closed takes it for a server that goes, and does not read the answer.
  const bool is_http_2 = exchange_ && exchange_->parser.status() == 505;
  loop_.give_back(std::exchange(exchange_, nullptr));
  if (!is_http_2) transport_.shut_down();
  is_readable_ = true;
  discard();
  return Step::closed;
}

void Connection::discard() {
  if (is_broken_ || transport_.discard()) remove();
}

bool Connection::is_idle() const {
  if (is_control() || is_removed_) return false;
  return is_lingering_ || (!is_dispatched_ && !(exchange_ && exchange_->parser.has_head()));
}

void Connection::evict() {
  loop_.metrics().given_way.add();
  remove();
}

void Connection::check_deadline(int64_t now) {
  const Config& config = loop_.edge().config();
  if (is_lingering_) {
    if (now - since_ > kLinger_ns) remove();
    return;
  }
  if (is_dispatched_) {
    if (exchange_->is_complete()) {
      if (exchange_->claim() && complete() == Step::go_on) serve();
    } else if (!exchange_->is_blocked()) {
      watched_ = Watched::nothing;
    } else if (is_stalled(Watched::answer, now, transport_.taken())) {
      cut_off();
      is_broken_ = true;
      proceed();
    }
    return;
  }
  const int64_t age = now - since_;
  if (!exchange_ || exchange_->size == 0) {
    if (exchange_ && age > kReleased_ns) loop_.give_back(std::exchange(exchange_, nullptr));
    const int64_t granted_s = transport_.is_handshaking() ? config.head_timeout_s : config.idle_timeout_s;
    if (age > granted_s * kSecond_ns && !is_control()) return remove();
    if (may_be_unread_ && age > kReleased_ns) {  // the kernel's memory is memory, too
      may_be_unread_ = transport_.has_unread();
      if (!may_be_unread_ || !is_stalled(Watched::unread, now, transport_.taken())) return;
      cut_off();
      remove();
    }
    return;
  }
  if (!exchange_->parser.has_head()) {
    if (age <= config.head_timeout_s * kSecond_ns) return;
    loop_.metrics().timed_out.add();
    refuse(error_response(408, "the request's head did not come in time"));
  } else if (is_stalled(Watched::body, now, received_)) {
    loop_.metrics().timed_out.add();
    refuse(error_response(408, "the request's body did not come in time"));
  }
}

// Whether the client neither sends nor takes enough, of what it is watched for.
bool Connection::is_stalled(Watched watched, int64_t now, int64_t bytes) {
  const Config& config = loop_.edge().config();
  if (std::exchange(watched_, watched) != watched) progress_.begin(now, bytes);
  return progress_.is_stalled(now, bytes, config.body_timeout_s, config.least_bytes_per_second);
}

// The client does not take the answer: nothing of it stays, not even with the kernel.
void Connection::cut_off() {
  loop_.metrics().timed_out.add();
  transport_.reset();
}

void Connection::close() {
  loop_.edge().forget_peer(peer_);
  if (exchange_) loop_.give_back(std::exchange(exchange_, nullptr));
}

void Connection::remove() {
  is_removed_ = true;
  loop_.remove(*this);
}

}  // namespace pytriton::http
