// A worker in the proxy's process, beside an interpreter with one lock, which clients take for their responses as well.
// It answers as worker.h does.
#pragma once

#include <condition_variable>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "chance.h"
#include "frames/wire.h"

class LocalWorker {
 public:
  // Answers at a path until its end. With streams, several batches are in flight, and a batch may get many replies.
  LocalWorker(const std::string& path, bool streams, uint64_t seed);
  ~LocalWorker();

  // For the interpreter, with its lock: a new connection, or a frame, and the answer to that if there is one at once;
  // false if the worker does not take it.
  bool accept(uint64_t connection);
  bool deliver(uint64_t connection, std::string_view message, std::string& answer);

 private:
  struct Task {
    uint64_t connection;
    uint32_t number, requests;
    std::vector<uint32_t> rows;
    std::vector<int64_t> shape;
    std::string values;
    uint64_t replies = 1;  // still to be sent
    bool hangs = false;    // until it is cancelled
  };

  static Task read(uint64_t connection, const pytriton::Frame& frame);
  static void ask(const Task& task);
  static pytriton::Outgoing response_to(const Task& task);
  static std::string echo(const Task& task);
  bool reply(Task& task);
  static bool send(const Task& task, pytriton::Outgoing& frame, bool more);
  void leave(uint64_t connection);
  void serve();

  const std::string path_;
  const bool streams_;
  Random random_;
  bool is_closing_ = false;
  std::map<uint64_t, bool> connections_;  // whether they are open still
  std::vector<uint64_t> refused_;         // to be left
  std::vector<Task> tasks_;
  std::condition_variable_any changed_;
  std::thread thread_;
};
