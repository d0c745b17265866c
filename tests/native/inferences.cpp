// Requests over HTTP from several threads, to a server that answers on others and releases requests before or after,
// while clients go. Run with sanitizers.
//
// Usage: inferences <requests of each client> <folder of the files of "split" and "shadow">
#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "echo_server.h"
#include "edge/background.h"
#include "edge/route_options.h"
#include "kserve/infer.h"
#include "predict/predict.h"

using namespace pytriton::http;

namespace {

constexpr int kClients = 4;

void call(unsigned seed, int requests) {
  std::minstd_rand random(seed);
  const std::string large(100'000, 'z');
  for (int number = 0; number < requests; ++number) {
    const unsigned kind = random() % 6;
    std::vector<Header> headers;
    if (kind == 0) headers.push_back({"inference-header-content-length", "0"});
    std::string body = kind == 0   ? large
                       : kind == 1 ? R"({"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["a","b"]}]})"
                       : kind == 4 ? R"({"instances":[{"x":[1]},{"x":[1,2]},{"x":[2]},{"t":["a"]}]})"
                       : kind == 5 ? R"({"x":[1,2]})"
                                   : R"({"x":[1,2],"t":"a"})";
    if (kind == 5) headers.push_back({"accept", "text/event-stream"});
    if (kind && random() % 8 == 0) body.append(kLargeJson, ' ');  // which another thread reads
    const bool is_compressed = random() % 4 == 0;
    if (is_compressed) headers.push_back({"accept-encoding", "gzip"});
    TestExchange exchange(body, headers);
    std::thread leaver;
    if (random() % 2) leaver = std::thread([&] { exchange.disconnect(); });
    const char* const names[] = {"none", "split", "shadow", "echo"};
    const Target target{kind == 3 || kind == 5 ? "stream" : names[std::min(random() % 8, 3UL)], -1};
    const Fallback fall_back = [] { broken("a right request is left"); };
    if (kind < 2) {
      infer_v2(nullptr, exchange, target, fall_back);
    } else if (kind < 4) {
      generate(nullptr, exchange, target, kind == 3, fall_back);
    } else {
      require(predict(nullptr, exchange, target, fall_back), "requests are answered");
    }
    exchange.wait();
    if (leaver.joinable()) leaver.join();
    require(kind != 0 || exchange.status != 200 || is_compressed ||
                exchange.answer.compare(exchange.answer.size() - large.size(), large.size(), large) == 0,
            "a large output is the input");
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 3, "usage: inferences <requests of each client> <folder of the files of traffic>");
  has_threads = true;
  for (const std::string name : {"echo", "stream", "split", "shadow"}) {
    configurations[name] = R"({"name": "m", "max_batch_size": 2,
      "parameters": {"pytriton_traffic": {"string_value": ")" +
                           name + R"(.traffic"}}, "input": [
      {"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "optional": true},
      {"name": "t", "data_type": "TYPE_STRING", "dims": [-1], "optional": true}], "output": [
      {"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}, {"name": "t", "data_type": "TYPE_STRING", "dims": [-1]}],
      "model_transaction_policy": {"decoupled": )" +
                           std::string(name == "stream" ? "true}}" : "false}}");
  }
  RouteOptions options;
  options.predict.timeout_ms = options.predict.heartbeat_ms = 1;  // some requests take longer
  options.traffic = arguments[2];
  set_route_options(options);
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (unsigned number = 0; number < kClients; ++number)
    clients.emplace_back(call, number + 1, std::stoi(arguments[1]));
  for (auto& client : clients) client.join();
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
