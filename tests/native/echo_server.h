// The part of the server that the edge calls, with models that answer with their inputs. It checks that it is
// called as its rules say.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "edge/exchange.h"

// "echo": each output is the input of its name. "stream": three such responses, decoupled. "fails": an error.
// "none": "echo", without a response. Their inputs are "x" (FP32, [-1]), "n" (INT64, [1]), "t" (BYTES, [-1]), "h"
// (FP16, [2]), and "b" (BOOL, [2, 2]); they have a batch axis.

// Configurations of further models, which echo, by name. To be filled before the first request.
extern std::map<std::string, std::string> configurations;

// Whether requests are answered by threads, released before or after, or else before the call that sends them returns.
extern std::atomic<bool> has_threads;

void wait_for_answers();  // of all requests, by threads

// What remains when all are answered and dropped: requests and responses, which shall be none.
int leftovers();

// A request over HTTP and its answer.
class TestExchange final : public pytriton::http::Exchange {
 public:
  TestExchange(std::string body, std::vector<pytriton::http::Header> headers);
  ~TestExchange();

  const pytriton::http::Request& request() const override { return request_; }
  void send(pytriton::http::Response&& response) override;
  void begin(pytriton::http::Response&& head) override;
  void write(std::string&& chunk) override;
  void end() override;
  size_t unsent() const override { return 0; }
  void on_disconnect(std::function<void()> cancel) override;
  void defer(std::function<void()> task) override { task(); }
  void retain() override { ++references_; }
  void release() override { --references_; }

  void disconnect();  // as if the client had gone
  bool is_complete() const { return is_complete_; }
  void wait() const;                                         // until the answer is complete, and nobody refers to this
  void wait_unless(const std::atomic<bool>& is_left) const;  // or it is left to others

  int status = 0;
  std::string content_type, headers, answer;  // body and parts, or all chunks

 private:
  std::string body_;
  pytriton::http::Request request_;
  std::mutex mutex_;
  std::function<void()> cancel_;
  bool is_begun_ = false, is_gone_ = false;
  std::atomic<bool> is_complete_{false};
  std::atomic<int> references_{0};
};

[[noreturn]] void broken(const std::string& rule);  // ends the program
void require(bool condition, const std::string& rule);
