// One connection to a worker, and what comes over it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../frames/arena.h"
#include "../frames/wire.h"

namespace pytriton {

// A received frame, and the memory that it views.
class Reply {
 public:
  Frame frame;

  // Copies some of the tensors' data, wherever they are. Throws FrameError.
  void read(uint64_t offset, void* to, uint64_t size) const;

 private:
  friend class SocketChannel;
  friend class LocalChannel;
  std::vector<char> message_;
  const PeerMemory* memory_ = nullptr;
  bool has_addresses_ = false;  // in this process, which the tensors' offsets are
};

class ReplyHandlerGuard;

// One thread receives; any may send and shut down.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends a frame; small tensors travel inside it, larger ones in memory of their own. Throws PeerGone (nothing of the
  // frame was seen by the worker) or ArenaFull (nothing was sent).
  virtual void send(Outgoing& frame) = 0;

  // The same, unless it would wait for another sender or for the worker to read; whether it was sent.
  virtual bool send_at_once(Outgoing& frame) = 0;

  // Waits for the next frame. Throws PeerGone or FrameError.
  virtual void receive(Reply& reply) = 0;

  // Whether the worker is in this process: its frames are given to a handler, and there is nothing to receive.
  virtual bool is_local() const { return false; }
  virtual void deliver_to(const std::shared_ptr<ReplyHandlerGuard>&) {}

  // The reply's data were copied: its region may be used again.
  virtual void finished(const Reply& reply) = 0;

  // Tells the worker of regions and of streamed replies that were taken, if there is something to tell and that can be
  // done without waiting. Throws PeerGone.
  virtual void release(bool taken, bool at_once = false) = 0;

  // Makes both sides' receiving end.
  virtual void shutdown() = 0;
  virtual bool is_shut() const = 0;

  // The same, and tells the worker that it is nobody's death.
  virtual void say_goodbye() = 0;
};

// Connects to the worker that answers at a path, waiting for it if need be: in this process, or where somebody listens.
// Throws PeerGone.
//
// timeout_s: until somebody is there. patience_s: until who listens has answered; a worker process that starts again
// does not, but its socket is kept open meanwhile.
std::shared_ptr<Channel> connect(const std::string& path, const std::string& hello, double timeout_s,
                                 double patience_s = 0);

}  // namespace pytriton
