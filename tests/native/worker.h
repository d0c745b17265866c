// A worker that answers as no good one would: out of order, in parts, with errors, nonsense or its death.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "frames/arena.h"
#include "frames/descriptor.h"

constexpr int kMaxRequests = 4;  // of a batch

// A socket that proxies find at a path.
pytriton::Descriptor listen_at(const std::string& path);
// Swaps greetings and arenas with a proxy that has connected. Throws PeerGone.
pytriton::PeerMemory greet(int socket, const pytriton::Arena& arena);

class Worker {
 public:
  // Listens at a path, and goes on to do so when it lets a connection die. With streams, several batches are in flight,
  // and a batch may get many replies.
  Worker(const std::string& path, bool streams, uint64_t seed);
  ~Worker();

 private:
  void serve(uint64_t seed);

  const bool streams_;
  pytriton::Descriptor listener_;
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};
