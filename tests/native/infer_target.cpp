// A request over HTTP, beside a server that answers with its inputs: one answer, which is JSON where it says so.
#include "echo_server.h"
#include "edge/route_options.h"
#include "frames/failure.h"
#include "frames/json.h"
#include "kserve/infer.h"
#include "target.h"

namespace {

using namespace pytriton::http;

bool is_json(const std::string& text) {
  // What JSON does not have, and Python's json module does.
  if (text.find("NaN") != std::string::npos || text.find("Infinity") != std::string::npos) return true;
  try {
    pytriton::Json::parse(text);
    return true;
  } catch (const pytriton::FrameError&) {
    return false;
  }
}

void check_answer(const TestExchange& exchange) {
  constexpr std::string_view kEvent = "data: ";
  if (exchange.content_type == "application/json") {
    require(is_json(exchange.answer), "an answer is JSON");
  } else if (exchange.content_type == "application/octet-stream") {
    const size_t size = std::stoul(exchange.headers.substr(exchange.headers.find(':') + 2));
    require(size <= exchange.answer.size() && is_json(exchange.answer.substr(0, size)), "an answer begins with JSON");
  } else {
    for (size_t at = 0; at < exchange.answer.size();) {
      const size_t end = exchange.answer.find("\n\n", at);
      require(end != std::string::npos && exchange.answer.compare(at, kEvent.size(), kEvent) == 0,
              "events have a form");
      require(is_json(exchange.answer.substr(at + kEvent.size(), end - at - kEvent.size())), "an event is JSON");
      at = end + 2;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChoice = 3;
  if (size < kChoice) return 0;
  const unsigned action = data[0] % 4;
  const std::string head_size = std::to_string(data[1] | data[2] << 8U);
  std::vector<Header> headers;
  if (action == 1) headers.push_back({"inference-header-content-length", head_size});
  TestExchange exchange(std::string(reinterpret_cast<const char*>(data) + kChoice, size - kChoice), std::move(headers));
  const Target target{action == 3 ? "stream" : "echo", -1};
  bool is_left = false;
  const Fallback fall_back = [&] { is_left = true; };
  if (action < 2) {
    infer_v2(nullptr, exchange, target, fall_back);
  } else {
    generate(nullptr, exchange, target, action == 3, fall_back);
  }
  if (!is_left) {
    exchange.wait();
    check_answer(exchange);
  }
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
