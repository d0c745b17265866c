// Regions of shared memory that clients have registered, for inputs and outputs.
//
// They are files in /dev/shm, which are read and written with system calls and never mapped: one that became shorter is
// an error, and no signal. The server's own endpoint knows the same regions, and its gRPC, where that is open, may
// change them: it is asked for what it has.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "../edge/exchange.h"
#include "../edge/server_call.h"
#include "../frames/descriptor.h"
#include "v2_path.h"

namespace pytriton::http {

class SharedRegion {
 public:
  // Opens the file. Throws Failure.
  SharedRegion(std::string name, std::string key, uint64_t offset, uint64_t size);

  // Throws Failure, with the server's words, if a part is beyond the region.
  void check(uint64_t offset, uint64_t size) const;

  // A part that was checked. Throws Failure if the file has become shorter.
  void read(uint64_t offset, char* to, size_t size) const;
  void write(uint64_t offset, const char* from, size_t size) const;

  // Whether it is what was registered: the same part of the file that has this name now, or had it last.
  bool is(const std::string& key, uint64_t offset, uint64_t size) const;

 private:
  [[noreturn]] void fail_shorter() const;

  const std::string name_, key_;
  const uint64_t offset_, size_;
  Descriptor file_;
};

// What a request to register a region has.
struct Registration {
  std::optional<std::string> key, handle;  // the latter in base64
  std::optional<uint64_t> offset, size, device;
};

class SharedRegions {
 public:
  // What the server's own endpoint has said less than a second ago. nullptr: it has to be looked up.
  std::shared_ptr<const SharedRegion> find(const std::string& name);

  // Asks the server's own endpoint unless it has just been asked. nullptr: it is memory of a GPU. Throws Failure if
  // there is no such region.
  std::shared_ptr<const SharedRegion> look_up(const std::string& name, const std::string& server);

  // After a change that the server's own endpoint knows first: it is asked again. All if the name is empty.
  void forget(const std::string& name);

  // Has the server's own endpoint register a region, unregister regions, or tell their status, and waits for it. Throws
  // Failure.
  ServerAnswer ask(const V2Path& path, const Registration& registration, const std::string& server);

  // Answers a request for that over HTTP.
  void answer(Exchange& exchange, const V2Path& path, const std::string& server);

 private:
  struct Known {
    std::shared_ptr<const SharedRegion> region;
    int64_t told_at = 0;
  };
  ServerAnswer register_region(const V2Path& path, const Registration& registration, const std::string& server);
  void remember(const std::string& name, std::shared_ptr<const SharedRegion> region);

  std::mutex changes_;  // held while the server's own endpoint is asked
  std::mutex mutex_;    // of the following
  std::map<std::string, Known> known_;
};

SharedRegions& shared_regions();  // of the process, which has one server

}  // namespace pytriton::http
