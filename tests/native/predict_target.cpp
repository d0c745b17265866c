// A request to /predict, beside a server that answers with its inputs: left to the application, or answered with JSON.
// The first byte chooses the model, the second what the client accepts.
#include <atomic>
#include <thread>

#include "echo_server.h"
#include "edge/route_options.h"
#include "frames/failure.h"
#include "frames/json.h"
#include "predict/predict.h"
#include "target.h"

namespace {

using namespace pytriton::http;

constexpr const char* kTyped = R"json({"name": "typed", "max_batch_size": 4, "input": [
  {"name": "i", "data_type": "TYPE_INT64", "dims": [1], "optional": true},
  {"name": "f", "data_type": "TYPE_FP64", "dims": [1], "optional": true},
  {"name": "s", "data_type": "TYPE_STRING", "dims": [1], "optional": true},
  {"name": "d", "data_type": "TYPE_STRING", "dims": [1], "optional": true},
  {"name": "l", "data_type": "TYPE_STRING", "dims": [-1], "optional": true},
  {"name": "a", "data_type": "TYPE_FP32", "dims": [-1, 2], "optional": true}], "output": [
  {"name": "i", "data_type": "TYPE_INT64", "dims": [1]}, {"name": "f", "data_type": "TYPE_FP64", "dims": [1]},
  {"name": "s", "data_type": "TYPE_STRING", "dims": [1]},
  {"name": "l", "data_type": "TYPE_STRING", "dims": [-1]}, {"name": "a", "data_type": "TYPE_FP32", "dims": [-1, 2]}],
  "parameters": {"pytriton.signature": {"string_value": "{\"version\": 1, \"passes\": \"arrays\", \"result\": \"object\",
  \"input\": {\"properties\": {\"i\": {\"type\": \"integer\"},
    \"f\": {\"type\": \"number\"}, \"s\": {\"type\": \"string\"},
    \"d\": {\"type\": \"string\", \"contentEncoding\": \"base64\"},
    \"l\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}},
    \"a\": {\"dtype\": \"FP32\", \"shape\": [-1, 2]}}},
  \"output\": {\"properties\": {\"i\": {\"type\": \"integer\"}, \"f\": {\"type\": \"number\"},
    \"s\": {\"type\": \"string\"},
    \"l\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}}, \"a\": {\"dtype\": \"FP32\", \"shape\": [-1, 2]}}}}"}}})json";

constexpr const char* kDeclared = R"json({"name": "declared", "max_batch_size": 3, "input": [
  {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, -1], "optional": true},
  {"name": "n", "data_type": "TYPE_UINT8", "dims": [1], "optional": true},
  {"name": "u", "data_type": "TYPE_UINT64", "dims": [2], "optional": true},
  {"name": "t", "data_type": "TYPE_STRING", "dims": [-1], "optional": true},
  {"name": "b", "data_type": "TYPE_BOOL", "dims": [1], "reshape": {"shape": []}, "optional": true}], "output": [
  {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, -1]}, {"name": "n", "data_type": "TYPE_UINT8", "dims": [1]},
  {"name": "u", "data_type": "TYPE_UINT64", "dims": [2]}, {"name": "t", "data_type": "TYPE_STRING", "dims": [-1]},
  {"name": "b", "data_type": "TYPE_BOOL", "dims": [1], "reshape": {"shape": []}}]})json";

std::string without_breaks(std::string text) {
  for (char& each : text)
    if (each == '\n') each = ' ';
  return text;
}

bool prepare() {
  configurations["typed"] = without_breaks(kTyped);
  configurations["declared"] = without_breaks(kDeclared);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_prepared = prepare();
  constexpr size_t kChoice = 2;
  if (!is_prepared || size < kChoice) return 0;
  const char* const accepted[] = {"", "text/event-stream", "application/x-ndjson", "image/png, */*;q=0.5"};
  std::vector<Header> headers{{"accept", accepted[data[1] % 4]}};
  TestExchange exchange(std::string(reinterpret_cast<const char*>(data) + kChoice, size - kChoice), std::move(headers));
  const Target target{data[0] % 4 ? data[0] % 2 ? "typed" : "declared" : "stream", -1};
  std::atomic<bool> is_left{false};
  if (predict(nullptr, exchange, target, [&] { is_left = true; })) {
    while (!is_left && !exchange.is_complete()) std::this_thread::yield();
    if (!is_left) {
      exchange.wait();
      if (exchange.content_type == "application/json") pytriton::Json::parse(exchange.answer);
    }
  }
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
