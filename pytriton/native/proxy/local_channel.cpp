#include "local_channel.h"

#include <cstdlib>

#include "../frames/failure.h"
#include "interpreter.h"

namespace pytriton {

namespace {
struct Freer {
  void operator()(char* memory) const { std::free(memory); }
};
}  // namespace

void LocalChannel::send(Outgoing& frame) {
  if (is_shut_) throw PeerGone("it serves the model no longer");
  std::unique_ptr<char, Freer> memory;
  if (const uint64_t size = frame.data_bytes(); size > kInlineLimitBytes) {
    memory.reset(static_cast<char*>(std::aligned_alloc(kAlign, size)));
    if (!memory) throw ArenaFull("no memory for a batch of " + std::to_string(size) + " bytes");
    copy_data(frame, memory.get());
    frame.region = reinterpret_cast<uint64_t>(memory.get());
  }
  std::vector<char> message;
  pack(frame, message);
  std::string answer;
  if (!deliver(number_, {message.data(), message.size()}, answer)) throw PeerGone("it serves the model no longer");
  static_cast<void>(memory.release());
  if (!answer.empty()) take(answer, nullptr);
}

bool LocalChannel::send_at_once(Outgoing& frame) {
  send(frame);
  return true;
}

void LocalChannel::receive(Reply&) { throw PeerGone("it gave no answer"); }

void LocalChannel::deliver_to(const std::shared_ptr<ReplyHandlerGuard>& handler) {
  const std::lock_guard lock(mutex_);
  handler_ = handler;
}

std::shared_ptr<ReplyHandlerGuard> LocalChannel::handler() {
  const std::lock_guard lock(mutex_);
  return handler_;
}

bool LocalChannel::take(std::string_view message, const uint64_t* addresses) noexcept {
  const std::shared_ptr<ReplyHandlerGuard> handler = this->handler();
  if (!handler) return false;
  bool makes_sense = true;
  const bool taken = handler->with([&](ReplyHandler& handler) {
    try {
      Reply reply;
      unpack(message, reply.frame);
      if (addresses) {
        for (size_t index = 0; index < reply.frame.tensors.size(); ++index) {
          reply.frame.tensors[index].offset = addresses[index];
        }
        reply.has_addresses_ = true;
      }
      handler.handle(*this, reply);
    } catch (const std::exception&) {
      makes_sense = false;
      is_shut_ = true;
      handler.worker_gone(*this);
    }
  });
  return taken && makes_sense;
}

void LocalChannel::lose() noexcept {
  is_shut_ = true;
  if (const std::shared_ptr<ReplyHandlerGuard> handler = this->handler()) {
    handler->with([&](ReplyHandler& handler) { handler.worker_gone(*this); });
  }
}

void LocalChannel::shutdown() {
  std::string none;
  if (!is_shut_.exchange(true)) deliver(number_, {}, none);
}

void LocalChannel::say_goodbye() {
  if (is_shut_.exchange(true)) return;
  Outgoing frame;
  frame.kind = Kind::goodbye;
  std::vector<char> message;
  pack(frame, message);
  std::string none;
  deliver(number_, {message.data(), message.size()}, none);
}

}  // namespace pytriton
