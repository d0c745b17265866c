#include "access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "../frames/failure.h"
#include "../frames/json.h"
#include "clock.h"

namespace pytriton::http {

namespace {

constexpr size_t kMostWaitingBytes = 1 << 20;  // that wait to be written
constexpr size_t kLongestLoggedTarget = 2048;

void append_time(std::string& line) {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  tm parts{};
  gmtime_r(&time.tv_sec, &parts);
  char text[32];
  line.append(text, strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.", &parts));
  const std::string milliseconds = std::to_string(time.tv_nsec / kMillisecond_ns);
  line.append(3 - milliseconds.size(), '0').append(milliseconds) += 'Z';
}

// The parser lets no control characters and nothing but ASCII through.
void append_member(std::string& line, std::string_view name, std::string_view text) {
  line += ",\"";
  line += name;
  line += "\":";
  append_json(line, text);
}

void append_member(std::string& line, std::string_view name, int64_t number) {
  line += ",\"";
  line += name;
  line += "\":";
  append_number(line, number);
}

}  // namespace

AccessLog::AccessLog(const std::string& to)
    : file_(to == "stderr" ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                           : ::open(to.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  if (!file_)
    throw Failure(Code::invalid_argument, "the access log cannot be opened: " + to + ": " + std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

AccessLog::~AccessLog() { close(); }

void AccessLog::close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void AccessLog::add(const Request& request, std::string_view route, uint64_t received, int status, uint64_t sent,
                    int64_t duration_ns) {
  std::string line = R"({"time":")";
  append_time(line);
  line += '"';
  append_member(line, "peer", request.peer);
  append_member(line, "method", request.method);
  append_member(line, "target", request.target.substr(0, kLongestLoggedTarget));
  append_member(line, "route", route);
  append_member(line, "status", status);
  append_member(line, "received", static_cast<int64_t>(received));
  append_member(line, "sent", static_cast<int64_t>(sent));
  append_member(line, "duration_us", duration_ns / 1000);
  line += "}\n";
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lines_.size() + line.size() > kMostWaitingBytes) {
    ++left_out_;
    return;
  }
  if (lines_.empty()) changed_.notify_one();
  lines_ += line;
}

void AccessLog::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_stopped_ || !lines_.empty()) {
    changed_.wait(lock, [&] { return is_stopped_ || !lines_.empty(); });
    std::string lines = std::move(lines_);
    lines_.clear();
    if (left_out_) lines += "{\"left_out\":" + std::to_string(std::exchange(left_out_, 0)) + "}\n";
    lock.unlock();
    for (size_t written = 0; written < lines.size();) {
      const ssize_t count = ::write(file_.get(), lines.data() + written, lines.size() - written);
      if (count < 0 && errno != EINTR) break;
      if (count > 0) written += static_cast<size_t>(count);
    }
    lock.lock();
  }
}

}  // namespace pytriton::http
