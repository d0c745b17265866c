// Connections to a process behind the edge, on a Unix socket. Of one loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../frames/descriptor.h"
#include "loop.h"

namespace pytriton::http {

class Upstream;

class UpstreamConnection final : public Pollable {
 public:
  UpstreamConnection(Upstream& upstream, Descriptor socket) : upstream_(upstream), socket_(std::move(socket)) {}

  void ready(uint32_t events) override;
  int descriptor() const { return socket_.get(); }

  Pollable* user = nullptr;  // gets the events; nullptr while it is idle
  bool is_reused = false;
  int64_t idle_since = 0;

 private:
  Upstream& upstream_;
  Descriptor socket_;
};

class Upstream {
 public:
  Upstream(Loop& loop, std::string path) : loop_(loop), path_(std::move(path)) {}
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  // An idle connection if there is one and a used one will do, or a new one. nullptr, with errno, if there is none.
  std::unique_ptr<UpstreamConnection> connect(bool may_be_used);

  // Whether it is worth trying again: the process has not opened its socket yet, or has too many connections to accept.
  bool may_come(int error) const;

  void keep(std::unique_ptr<UpstreamConnection> connection);
  void drop(std::unique_ptr<UpstreamConnection> connection);
  void drop_idle(const UpstreamConnection& connection);

 private:
  void expire();

  Loop& loop_;
  const std::string path_;
  bool is_timed_ = false;  // expire() will be called
  bool was_connected_ = false;
  std::vector<std::unique_ptr<UpstreamConnection>> idle_;
};

}  // namespace pytriton::http
