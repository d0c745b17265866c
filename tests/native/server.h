// The part of the server that batches pass through: requests, and responses that are checked as they are sent. It takes
// no lock, so that ThreadSanitizer sees the locks of the proxy alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "frames/triton.h"

// What a client waits for. It outlives its request, as a stream does.
struct Ticket {
  explicit Ticket(std::vector<float> values) : values(std::move(values)) { ++open; }

  const std::vector<float> values;  // of the input, and of each response that is no error
  std::atomic<bool> is_cancelled{false};
  int responses = 0, errors = 0;
  bool is_final = false;
  std::atomic<bool> is_over{false};  // final, as other threads may ask

  static std::atomic<int> open;        // tickets whose last response is awaited
  static std::atomic<int> unreleased;  // requests that were not given back
};

using TicketPointer = std::shared_ptr<Ticket>;

// A request with an input "x" of shape (1, values), which an output "y" has to be equal to. Given back by
// TRITONBACKEND_RequestRelease.
TRITONBACKEND_Request* make_request(TicketPointer ticket, std::vector<std::string> outputs = {"y"});

// Where a client takes responses with a lock, as an interpreter's does: how to take it, and to give it back.
struct ClientLock {
  void (*take)() = [] {};
  void (*give_back)() = [] {};
};
extern ClientLock client_lock;

// Ends the program: the proxy broke a rule of the server.
[[noreturn]] void broken(const std::string& rule);
