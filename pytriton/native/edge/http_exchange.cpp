#include "http_exchange.h"

#include <algorithm>
#include <climits>

#include "access_log.h"
#include "clock.h"
#include "connection.h"
#include "edge.h"
#include "error_response.h"
#include "router.h"
#include "transport.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostParts = IOV_MAX;
constexpr uint64_t kMostLeftBytes = 64 << 10;  // of an answer that is left to the loop
constexpr uint64_t kFewInFlight = 8;           // requests, whose answers are not left to it
constexpr size_t kSmallAnswer = 64 << 10;      // bytes, which is not charged
constexpr size_t kKeptStreamBytes = 64 << 10;  // of what was written to a stream, for the next one

const char* phrase(int status) {
  constexpr struct {
    int status;
    const char* phrase;
  } kPhrases[] = {{200, "OK"},
                  {201, "Created"},
                  {202, "Accepted"},
                  {204, "No Content"},
                  {206, "Partial Content"},
                  {301, "Moved Permanently"},
                  {302, "Found"},
                  {303, "See Other"},
                  {304, "Not Modified"},
                  {307, "Temporary Redirect"},
                  {308, "Permanent Redirect"},
                  {400, "Bad Request"},
                  {401, "Unauthorized"},
                  {403, "Forbidden"},
                  {404, "Not Found"},
                  {405, "Method Not Allowed"},
                  {406, "Not Acceptable"},
                  {408, "Request Timeout"},
                  {409, "Conflict"},
                  {411, "Length Required"},
                  {413, "Content Too Large"},
                  {414, "URI Too Long"},
                  {415, "Unsupported Media Type"},
                  {417, "Expectation Failed"},
                  {422, "Unprocessable Content"},
                  {429, "Too Many Requests"},
                  {431, "Request Header Fields Too Large"},
                  {499, "Client Closed Request"},
                  {500, "Internal Server Error"},
                  {501, "Not Implemented"},
                  {502, "Bad Gateway"},
                  {503, "Service Unavailable"},
                  {504, "Gateway Timeout"},
                  {505, "HTTP Version Not Supported"}};
  for (const auto& each : kPhrases)
    if (each.status == status) return each.phrase;
  return "Other";
}

bool may_have_body(int status) { return status >= 200 && status != 204 && status != 304; }

void append_chunk(std::string& to, std::string_view chunk) {
  constexpr size_t kDigits = 2 * sizeof(size_t);
  char digits[kDigits];
  char* first = digits + kDigits;
  for (size_t rest = chunk.size(); rest; rest /= 16) *--first = "0123456789abcdef"[rest % 16];
  to.append(first, digits + kDigits);
  to += "\r\n";
  to += chunk;
  to += "\r\n";
}

iovec part_of(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

void HttpExchange::open(std::shared_ptr<Share> share) {
  share_ = std::move(share);
  memory_ = Charge(share_);
  memory_.force(buffer.capacity());
}

Refusal HttpExchange::resize(size_t capacity, bool may_be_refused) {
  if (!may_be_refused) {
    memory_.force(capacity);
  } else if (const Refusal refusal = memory_.resize(capacity); refusal != Refusal::none) {
    return refusal;
  }
  return buffer.reserve(capacity) ? Refusal::none : Refusal::all;
}

bool HttpExchange::reserve(uint64_t bytes, Charge& charge) {
  Charge reserved(share_);
  const Refusal refusal = reserved.resize(bytes);
  if (refusal == Refusal::none) {
    charge = std::move(reserved);
  } else {
    refusal_.store(refusal, std::memory_order_relaxed);
  }
  return refusal == Refusal::none;
}

void HttpExchange::dispatch(const Client& client, bool tells_end) {
  client_ = client;
  parser.fill(request_, buffer.data());
  request_.peer = client.peer;
  request_.is_encrypted = client.is_encrypted;
  received_at_ = now_ns();
  client_.loop->metrics().in_flight.add();
  if (RecentRequests* const recent = client_.loop->edge().recent_requests())
    number_ = recent->begin(request_.peer, request_.method, request_.path, request_.body.size());
  flags_.store(tells_end ? kBusy | kTellEnd : kBusy, std::memory_order_release);
}

bool HttpExchange::claim() {
  if (flags_.fetch_or(kTellEnd) != 0) return false;
  flags_.store(0);
  return true;
}

void HttpExchange::end_claim() { flags_.store(0); }

void HttpExchange::send(Response&& response) {
  Lock lock(mutex_);
  if (stage_ != Stage::open) return;
  stage_ = Stage::complete;
  charge_answer(response);
  response_ = std::move(response);
  uint64_t length = response_.body.size();
  for (const iovec& part : response_.parts) length += part.iov_len;
  write_head(response_, static_cast<int64_t>(length));
  if (has_body_) {
    if (!response_.body.empty()) parts_.push_back(part_of(response_.body));
    for (const iovec& part : response_.parts)
      if (part.iov_len) parts_.push_back(part);
  }
  is_left_ = is_for_loop(length);
  if (!is_left_) return settle(lock);
  lock.unlock();
  client_.loop->notify(*this);
}

// An answer for which there is no memory until the client has taken it becomes one that says so.
void HttpExchange::charge_answer(Response& response) {
  if (response.body.size() > kSmallAnswer && !reserve(response.body.size(), unsent_charge_))
    response = busy_response(refusal_);
  if (refusal_ != Refusal::none && response.status >= 500) {
    response.headers = busy_response(refusal_).headers;
    response.status = refusal_ == Refusal::share ? 429 : 503;
  }
}

// Whether the loop sends an answer. If requests are few, or the answer is large, the thread that has it is faster. If
// they are many, the loop sends all answers of a batch in one go: else each wakes its client, and then the loop, by
// itself.
bool HttpExchange::is_for_loop(uint64_t length) const {
  Loop& loop = *client_.loop;
  return length <= kMostLeftBytes && loop.metrics().in_flight.value() > kFewInFlight && !is_gone_ && !loop.is_current();
}

void HttpExchange::handle() {
  if (!send_left()) client_.connection->resume();
}

bool HttpExchange::send_left() {
  Lock lock(mutex_);
  if (!std::exchange(is_left_, false)) return false;
  settle(lock);
  return true;
}

void HttpExchange::begin(Response&& head) {
  Lock lock(mutex_);
  if (stage_ != Stage::open) return;
  stage_ = Stage::streaming;
  missing_ = head.content_length;
  has_chunks_ = missing_ < 0 && !parser.is_http_1_0();
  if (missing_ < 0 && parser.is_http_1_0()) client_.keeps_alive = false;
  write_head(head, missing_);
  if (!has_body_) {
    missing_ = -1;
    has_chunks_ = false;
  }
  settle(lock);
}

void HttpExchange::write(std::string&& chunk) {
  Lock lock(mutex_);
  if (stage_ != Stage::streaming || is_gone_ || !has_body_ || chunk.empty()) return;
  if (has_chunks_) {
    append_chunk(pending_, chunk);
  } else if (missing_ < 0 || static_cast<uint64_t>(missing_) >= chunk.size()) {
    if (missing_ >= 0) missing_ -= static_cast<int64_t>(chunk.size());
    if (pending_.empty()) {
      pending_ = std::move(chunk);
    } else {
      pending_ += chunk;
    }
  }
  settle(lock);
}

void HttpExchange::end() {
  Lock lock(mutex_);
  if (stage_ != Stage::streaming) return;
  stage_ = Stage::complete;
  if (has_chunks_ && !is_gone_) pending_ += "0\r\n\r\n";
  if (missing_ > 0) client_.keeps_alive = false;
  if (!client_.keeps_alive) flags_.fetch_or(kTellEnd);
  settle(lock);
}

void HttpExchange::abort() {
  Lock lock(mutex_);
  if (stage_ == Stage::complete) return;
  stage_ = Stage::complete;
  is_gone_ = true;
  flags_.fetch_or(kTellEnd);
  settle(lock);
}

void HttpExchange::on_disconnect(std::function<void()> cancel) {
  const std::lock_guard<std::recursive_mutex> lock(cancel_mutex_);
  if (is_cancelled_ && cancel) {
    cancel();
  } else {
    cancel_ = std::move(cancel);
  }
}

void HttpExchange::defer(std::function<void()> task) {
  if (!client_.loop->is_current()) return task();
  client_.loop->defer(std::move(task));
}

void HttpExchange::release() {
  int references = references_.load(std::memory_order_acquire);
  do {
    if (references == 2 && is_busy()) abandon();  // the other one is the connection's
  } while (!references_.compare_exchange_weak(references, references - 1, std::memory_order_acq_rel));
  if (references == 1) delete this;
}

void HttpExchange::flush() {
  Lock lock(mutex_);
  if (!is_blocked_) return;
  settle(lock);
  if (!drained || !is_busy() || is_blocked()) return;
  const auto call = drained;  // which may replace it
  call();
}

void HttpExchange::disconnect() {
  Lock lock(mutex_);
  if (is_gone_) return;
  is_gone_ = true;
  if (is_left_) return;  // send_left() comes
  const bool is_answered = stage_ == Stage::complete;
  settle(lock);
  if (!is_answered) call_cancel();
}

bool HttpExchange::is_gone() const {
  const Lock lock(mutex_);
  return is_gone_;
}

void HttpExchange::replace_body(std::shared_ptr<const Buffer> content, size_t size, Charge&& charge) {
  if (this->size == parser.end()) {  // nobody reads what was compressed any more
    buffer.shrink(parser.body_start());
    memory_.force(buffer.capacity());
    parser.fill(request_, buffer.data());
  }
  content_ = std::move(content);
  content_charge_ = std::move(charge);
  request_.body = {content_->data(), size};
  auto& headers = request_.headers;
  headers.erase(std::remove_if(headers.begin(), headers.end(),
                               [](const Header& each) { return equals_ignoring_case(each.name, "content-encoding"); }),
                headers.end());
}

void HttpExchange::reset() {
  content_.reset();
  content_charge_.drop();
  refusal_ = Refusal::none;
  parser.reset();
  request_.headers.clear();
  stage_ = Stage::open;
  is_gone_ = is_finished_ = has_chunks_ = is_cancelled_ = false;
  has_body_ = true;
  missing_ = -1;
  status_ = 0;
  sent_bytes_ = 0;
  route = Route::none;
  model.clear();
  drained = nullptr;
  cancel_ = nullptr;
}

void HttpExchange::write_head(const Response& response, int64_t length) {
  status_ = response.status;
  has_body_ = may_have_body(status_) && request_.method != "HEAD";
  if (client_.loop->is_draining()) client_.keeps_alive = false;
  head_.assign("HTTP/1.1 ");
  append_number(head_, status_);
  head_ += ' ';
  head_ += phrase(status_);
  if (!response.content_type.empty()) {
    head_ += "\r\nContent-Type: ";
    head_ += response.content_type;
  }
  if (length >= 0 && may_have_body(status_)) {
    head_ += "\r\nContent-Length: ";
    append_number(head_, length);
  } else if (has_chunks_ && has_body_) {
    head_ += "\r\nTransfer-Encoding: chunked";
  }
  if (!client_.keeps_alive) {
    head_ += "\r\nConnection: close";
    flags_.fetch_or(kTellEnd);
  } else if (parser.is_http_1_0()) {
    head_ += "\r\nConnection: keep-alive";
  }
  head_ += "\r\n";
  head_ += response.headers;
  head_ += "\r\n";
  parts_.push_back(part_of(head_));
}

// Sends what is there, and calls whoever waits for that; the lock is released.
void HttpExchange::settle(Lock& lock) {
  const bool was_gone = is_gone_;
  Sent sent = is_gone_ ? Sent::failed : send_pending();
  if (sent == Sent::blocked && unsent() > kSmallAnswer && unsent() > unsent_charge_.bytes() &&
      !reserve(2 * unsent(), unsent_charge_))
    sent = Sent::failed;  // a stream that nobody reads, and there is no memory for more of it
  if (sent == Sent::failed) {
    is_gone_ = true;
    flags_.fetch_or(kTellEnd);
    drop_output();
  }
  if ((sent == Sent::blocked) != is_blocked_) {
    is_blocked_ = sent == Sent::blocked;
    client_.loop->watch_output(*client_.connection, is_blocked_);
  }
  if (sent == Sent::all && stage_ == Stage::streaming) unsent_charge_.drop();
  const bool is_cancelled = sent == Sent::failed && !was_gone;
  const bool is_finished = stage_ == Stage::complete && !is_blocked_ && !is_finished_;
  if (is_finished) {
    is_finished_ = true;
    drop_output();
  }
  lock.unlock();
  if (is_cancelled) call_cancel();
  if (is_finished) finish();
}

HttpExchange::Sent HttpExchange::send_pending() {
  while (true) {
    iovec stream;
    const iovec* parts = &stream;
    size_t count = 1;
    if (first_part_ < parts_.size()) {
      parts = parts_.data() + first_part_;
      count = std::min(parts_.size() - first_part_, kMostParts);
    } else {
      if (sent_ == sending_.size()) {
        sending_.clear();
        sent_ = 0;
        sending_.swap(pending_);
      }
      if (sending_.empty()) break;
      stream = part_of(std::string_view(sending_).substr(sent_));
    }
    const ssize_t sent = client_.transport->send(parts, count);
    if (sent < 0) {
      unsent_.store(sending_.size() - sent_ + pending_.size(), std::memory_order_relaxed);
      return errno == EAGAIN ? Sent::blocked : Sent::failed;
    }
    advance(static_cast<size_t>(sent));
  }
  unsent_.store(0, std::memory_order_relaxed);
  return Sent::all;
}

void HttpExchange::advance(size_t sent) {
  sent_bytes_ += sent;
  if (first_part_ == parts_.size()) {
    sent_ += sent;
    return;
  }
  while (sent) {
    iovec& part = parts_[first_part_];
    const size_t of_part = std::min(sent, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + of_part;
    part.iov_len -= of_part;
    sent -= of_part;
    if (!part.iov_len) ++first_part_;
  }
}

void HttpExchange::drop_output() {
  parts_.clear();
  first_part_ = 0;
  for (std::string* const each : {&sending_, &pending_}) {
    if (each->capacity() > kKeptStreamBytes) std::string().swap(*each);
    each->clear();
  }
  sent_ = 0;
  unsent_.store(0, std::memory_order_relaxed);
  unsent_charge_.drop();
}

void HttpExchange::call_cancel() {
  const std::lock_guard<std::recursive_mutex> lock(cancel_mutex_);
  if (is_cancelled_) return;
  is_cancelled_ = true;
  if (!cancel_) return;
  const auto cancel = std::move(cancel_);
  cancel_ = nullptr;
  cancel();
}

// Nobody is left to answer, because of an error of the route.
void HttpExchange::abandon() {
  Stage stage;
  {
    const Lock lock(mutex_);
    stage = stage_;
  }
  if (stage == Stage::streaming) abort();
  if (stage == Stage::open)
    send({500, "application/json", "", R"({"error":"the request was not answered"})", {}, {}, -1});
}

// Whether the model that was named exists: clients may make names up.
bool HttpExchange::is_of_model() const {
  constexpr int kNotFound = 404, kLastSuccess = 299;
  return !model.empty() && (route == Route::predict ? status_ != kNotFound : status_ <= kLastSuccess);
}

// Whether the client is at fault. Requests for the app, which counts them itself, are left out.
bool HttpExchange::is_refused() const {
  constexpr int kFirst = 400, kClientWentAway = 499;
  return route != Route::predict && route != Route::application && status_ >= kFirst && status_ < kClientWentAway;
}

// The last that a thread does with the exchange: from then on, the loop may use it for another request.
void HttpExchange::finish() {
  response_ = {};  // before the client's next request may need the memory
  answered_at_ = now_ns();
  Loop& loop = *client_.loop;
  loop.metrics().in_flight.subtract();
  if (RecentRequests* const recent = loop.edge().recent_requests()) recent->end(number_);
  if (route != Route::control) report(loop);
  if (flags_.fetch_and(~uint32_t{kBusy}) & kTellEnd) loop.notify(*this);
}

void HttpExchange::report(Loop& loop) {
  loop.metrics().count(route, status_, answered_at_ - received_at_, sent_bytes_);
  if (SharedCounters* const counters = loop.edge().counters()) {
    if (route == Route::predict) counters->end();
    if (is_of_model())
      counters->count(route == Route::predict, model, status_, answered_at_ - received_at_, request_.body.size(),
                      sent_bytes_ - std::min<uint64_t>(sent_bytes_, head_.size()));
    if (is_refused()) counters->refuse(status_);
  }
  if (AccessLog* const log = loop.access_log())
    log->add(request_, name_of(route), request_.body.size(), status_, sent_bytes_, answered_at_ - received_at_);
}

}  // namespace pytriton::http
