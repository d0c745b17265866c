// One connection to a worker: frames on a SEQPACKET Unix socket, large tensors through two arenas.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arena.h"
#include "descriptor.h"
#include "wire.h"

namespace pytriton {

// A received frame, and the memory that it views.
class Reply {
 public:
  Frame frame;

  uint64_t data_bytes() const { return frame.region == kNoRegion ? frame.data.size() : region_bytes_; }
  // Copies some of the tensors' data, wherever they are. Throws FrameError.
  void read(uint64_t offset, void* to, uint64_t size) const;

 private:
  friend class Channel;
  std::vector<char> message_;
  const PeerMemory* memory_ = nullptr;
  uint64_t region_bytes_ = 0;
};

// One thread receives; any may send and shut down.
class Channel {
 public:
  Channel(Descriptor socket, std::unique_ptr<Arena> arena, PeerMemory peer);

  // Sends a frame; small tensors travel inside it, larger ones through the arena. Throws PeerGone (nothing of the frame
  // was seen by the worker) or ArenaFull (nothing was sent).
  void send(Outgoing& frame);

  // The same, unless it would wait for another sender or for the worker to read; whether it was sent.
  bool send_at_once(Outgoing& frame);

  // Waits for the next frame. Throws PeerGone or FrameError.
  void receive(Reply& reply);

  // The reply's data were copied: its region may be used again.
  void finished(const Reply& reply);

  // Tells the worker of regions and of streamed replies that were taken, if there is something to tell and that can be
  // done without waiting. Throws PeerGone.
  void release(bool taken, bool at_once = false);

  // Makes both sides' receiving end.
  void shutdown();
  bool is_shut() const { return is_shut_; }

  // The same, and tells the worker that it is nobody's death.
  void say_goodbye();

 private:
  bool send_locked(Outgoing& frame, int flags);
  bool spill(Outgoing& frame, int flags);
  void take_back(const Outgoing& frame);
  void lay_out(const Outgoing& frame);
  void take_released(std::vector<uint64_t>& into);
  void put_back(const std::vector<uint64_t>& released);
  void accept(Reply& reply, bool spilled);

  Descriptor socket_;
  std::unique_ptr<Arena> arena_;
  PeerMemory peer_;
  std::mutex sending_;
  std::vector<char> message_;  // to be sent
  std::mutex releasing_;
  std::vector<uint64_t> released_;
  std::atomic<bool> is_shut_{false};
  std::atomic<uint32_t> taken_{0};  // streamed replies in all
  uint32_t told_ = 0;               // of which the worker knows
};

// Connects to the worker that listens at a path, waiting for it if need be. Throws PeerGone.
//
// timeout_s: until somebody listens. patience_s: until who listens has answered; a worker process that starts again
// does not, but its socket is kept open meanwhile.
std::shared_ptr<Channel> connect(const std::string& path, const std::string& hello, double timeout_s,
                                 double patience_s = 0);

}  // namespace pytriton
