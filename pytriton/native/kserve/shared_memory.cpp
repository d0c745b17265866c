#include "shared_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>

#include "../edge/clock.h"
#include "../edge/error_response.h"
#include "../frames/failure.h"
#include "../frames/json.h"
#include "control_body.h"
#include "infer_answer.h"
#include "infer_request.h"
#include "json_elements.h"

namespace pytriton::http {

namespace {

constexpr int64_t kTold_ns = kSecond_ns;  // over gRPC, a region may be unregistered at any time
constexpr size_t kMostRegions = 4096;     // each has a descriptor

// The path of a file in /dev/shm, as shm_open() has it.
std::string path_of(const std::string& key) {
  const std::string file = key.substr(std::min(key.find_first_not_of('/'), key.size()));
  if (file.empty() || file.size() > NAME_MAX || file.find('/') != std::string::npos || file == "." || file == "..")
    throw Failure(Code::internal, "Unable to open shared memory region: '" + key + "'");
  return "/dev/shm/" + file;
}

Descriptor open_file(const std::string& key) {
  Descriptor file(::open(path_of(key).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Failure(Code::internal, "Unable to open shared memory region: '" + key + "'");
  return file;
}

// Written anew, for the server's own endpoint.
std::string json_of(const Registration& registration) {
  std::string json = "{";
  const auto add = [&](const char* name, const std::string& value) {
    json += json.size() > 1 ? "," : "";
    json.append("\"").append(name).append("\":").append(value);
  };
  const auto text = [](const std::string& value) {
    std::string quoted;
    append_json(quoted, value);
    return quoted;
  };
  if (registration.key) add("key", text(*registration.key));
  if (registration.handle) add("raw_handle", "{\"b64\":" + text(*registration.handle) + "}");
  if (registration.device) add("device_id", std::to_string(*registration.device));
  if (registration.offset) add("offset", std::to_string(*registration.offset));
  if (registration.size) add("byte_size", std::to_string(*registration.size));
  return json + "}";
}

uint64_t read_unsigned(JsonValue value) {
  uint64_t number = 0;
  if (value.get_uint64().get(number))
    throw Failure(Code::invalid_argument, "attempt to access JSON non-unsigned-integer as unsigned-integer");
  return number;
}

std::string read_handle(JsonValue value) {
  std::string handle;
  for (auto each : members_of(value)) {
    auto field = checked(std::move(each));
    if (checked(field.unescaped_key()) == "b64") {
      handle = read_text(field.value(), "b64");
    } else {
      skip(field.value(), kControlLevels);
    }
  }
  return handle;
}

// Throws Failure.
Registration read_registration(std::string_view body) {
  check_control_body(Action::memory_register, body);
  JsonParser parser;
  auto document = parser.parse(body);
  Registration registration;
  for (auto each : members_of(document)) {
    auto field = checked(std::move(each));
    const std::string name(checked(field.unescaped_key()));
    if (name == "key") {
      registration.key = read_text(field.value(), "key");
    } else if (name == "raw_handle") {
      registration.handle = read_handle(field.value());
    } else if (name == "device_id") {
      registration.device = read_unsigned(field.value());
    } else if (name == "offset") {
      registration.offset = read_unsigned(field.value());
    } else if (name == "byte_size") {
      registration.size = read_unsigned(field.value());
    } else {
      skip(field.value(), kControlLevels);
    }
  }
  return registration;
}

// The server maps a key that is registered already from a descriptor that it has closed, which may be that of any file.
void refuse_used(const std::string& key, const std::string& region, const std::string& server) {
  const Json status = Json::parse(ask_server(server, "GET", "/v2/systemsharedmemory/status").body);
  bool is_used = false;
  for (const Json& each : status.list()) {
    if (each["name"].text() == region)
      throw Failure(Code::already_exists, "shared memory region '" + region + "' already in manager");
    is_used |= each["key"].text() == key;
  }
  if (is_used) throw Failure(Code::internal, "Invalid shared memory region: '" + key + "'");
}

uint64_t number_in(const Json& object, const char* name) {
  const Json* const member = object.find(name);
  const int64_t number = member ? member->integer() : 0;
  if (number < 0) throw FrameError("a region has a negative size");
  return static_cast<uint64_t>(number);
}

}  // namespace

SharedRegion::SharedRegion(std::string name, std::string key, uint64_t offset, uint64_t size)
    : name_(std::move(name)), key_(std::move(key)), offset_(offset), size_(size), file_(open_file(key_)) {}

void SharedRegion::check(uint64_t offset, uint64_t size) const {
  if (offset >= size_)
    throw Failure(Code::invalid_argument, "Invalid offset for shared memory region: '" + name_ + "'");
  if (!size || size > size_ - offset)
    throw Failure(Code::invalid_argument, "Invalid offset + byte size for shared memory region: '" + name_ + "'");
}

void SharedRegion::read(uint64_t offset, char* to, size_t size) const {
  offset += offset_;
  while (size) {
    const ssize_t got = ::pread(file_.get(), to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_shorter();
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

void SharedRegion::write(uint64_t offset, const char* from, size_t size) const {
  offset += offset_;
  struct stat status{};
  // Else a file that became shorter would grow again.
  if (::fstat(file_.get(), &status) != 0 || static_cast<uint64_t>(status.st_size) < offset + size) fail_shorter();
  while (size) {
    const ssize_t put = ::pwrite(file_.get(), from, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw Failure(Code::internal, "shared memory region '" + name_ + "' cannot be written");
    from += put;
    offset += static_cast<uint64_t>(put);
    size -= static_cast<size_t>(put);
  }
}

bool SharedRegion::is(const std::string& key, uint64_t offset, uint64_t size) const {
  if (key != key_ || offset != offset_ || size != size_) return false;
  struct stat mine{}, named{};
  if (::stat(path_of(key).c_str(), &named) != 0) return true;  // its name is gone, and it stays
  return ::fstat(file_.get(), &mine) == 0 && mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

void SharedRegion::fail_shorter() const {
  throw Failure(Code::invalid_argument, "shared memory region '" + name_ + "' is shorter than it was registered");
}

std::shared_ptr<const SharedRegion> SharedRegions::find(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = known_.find(name);
  return found != known_.end() && now_ns() - found->second.told_at < kTold_ns ? found->second.region : nullptr;
}

std::shared_ptr<const SharedRegion> SharedRegions::look_up(const std::string& name, const std::string& server) {
  const std::lock_guard<std::mutex> lock(changes_);
  if (auto region = find(name)) return region;
  const Failure unknown(Code::not_found, "Unable to find shared memory region: '" + name + "'");
  V2Path path;
  path.action = Action::memory_status;
  path.region = name;
  const auto target = name.empty() ? std::nullopt : server_target(path);
  if (!target) throw unknown;
  const ServerAnswer answer = ask_server(server, "GET", *target);
  if (answer.status == 200) {
    const Json status = Json::parse(answer.body);
    const Json& first = status.list().empty() ? status : status.list().front();
    const std::string& key = first["key"].text();
    const uint64_t offset = number_in(first, "offset"), size = number_in(first, "byte_size");
    std::shared_ptr<const SharedRegion> region;
    {
      const std::lock_guard<std::mutex> known_lock(mutex_);
      if (const auto found = known_.find(name); found != known_.end()) region = found->second.region;
    }
    if (!region || !region->is(key, offset, size))
      region = std::make_shared<const SharedRegion>(name, key, offset, size);
    remember(name, region);
    return region;
  }
  forget(name);
  path.is_cuda = true;
  if (ask_server(server, "GET", *server_target(path)).status != 200) throw unknown;
  return nullptr;
}

ServerAnswer SharedRegions::ask(const V2Path& path, const Registration& registration, const std::string& server) {
  const auto target = server_target(path);
  if (!target) throw Failure(Code::invalid_argument, "a region's name has letters, digits and -._~!$&'()*+,;=:@ alone");
  const std::lock_guard<std::mutex> lock(changes_);
  if (path.action == Action::memory_register) return register_region(path, registration, server);
  if (path.action != Action::memory_unregister) return ask_server(server, "GET", *target);
  if (!path.is_cuda) forget(path.region);
  return ask_server(server, "POST", *target);
}

void SharedRegions::answer(Exchange& exchange, const V2Path& path, const std::string& server) {
  answer_failures(exchange, [&] {
    Registration registration;
    if (path.action == Action::memory_register) registration = read_registration(exchange.request().body);
    ServerAnswer answer = ask(path, registration, server);
    Response response;
    response.status = answer.status;
    response.body = std::move(answer.body);
    exchange.send(std::move(response));
  });
}

ServerAnswer SharedRegions::register_region(const V2Path& path, const Registration& registration,
                                            const std::string& server) {
  uint64_t end = 0;
  if (__builtin_add_overflow(registration.offset.value_or(0), registration.size.value_or(0), &end) || end > INT64_MAX)
    throw Failure(Code::invalid_argument, "failed to register shared memory region: its end is beyond all memory");
  if (registration.key && !path.is_cuda) refuse_used(*registration.key, path.region, server);
  const ServerAnswer answer = ask_server(server, "POST", *server_target(path), json_of(registration));
  if (answer.status != 200 || path.is_cuda || path.region.empty()) return answer;
  try {
    remember(path.region,
             std::make_shared<const SharedRegion>(path.region, registration.key.value_or(""),
                                                  registration.offset.value_or(0), registration.size.value_or(0)));
  } catch (const Failure&) {
    V2Path back = path;
    back.action = Action::memory_unregister;
    ask_server(server, "POST", *server_target(back));
    throw;
  }
  return answer;
}

void SharedRegions::remember(const std::string& name, std::shared_ptr<const SharedRegion> region) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (known_.size() >= kMostRegions && !known_.count(name))
    throw Failure(Code::unavailable, "more than " + std::to_string(kMostRegions) + " shared memory regions are known");
  known_[name] = {std::move(region), now_ns()};
}

void SharedRegions::forget(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name.empty()) {
    known_.clear();
  } else {
    known_.erase(name);
  }
}

SharedRegions& shared_regions() {
  static auto* const regions = new SharedRegions;  // threads may use it until the process ends
  return *regions;
}

}  // namespace pytriton::http
