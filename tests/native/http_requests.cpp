// Requests to infer and generate over HTTP, and their answers, beside a server that answers with the inputs.
#include <cstdio>
#include <cstring>

#include "echo_server.h"
#include "http/routes.h"

using namespace pytriton::http;

namespace {

struct Answer {
  int status;
  std::string body, content_type, headers;
};

Answer ask(const std::string& model, const char* action, const std::string& body, std::vector<Header> headers = {}) {
  TestExchange exchange(body, std::move(headers));
  const bool is_answered = std::strcmp(action, "infer")
                               ? generate(nullptr, exchange, {model, -1}, !std::strcmp(action, "generate_stream"))
                               : infer_v2(nullptr, exchange, {model, -1});
  if (!is_answered) return {0, "", "", ""};
  exchange.wait();
  return {exchange.status, exchange.answer, exchange.content_type, exchange.headers};
}

void expect(const Answer& answer, int status, const std::string& body, const std::string& what) {
  if (answer.status == status && answer.body == body) return;
  broken(what + "\n  gives " + std::to_string(answer.status) + " " + answer.body + "\n  not   " +
         std::to_string(status) + " " + body);
}

std::string input(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& data) {
  return R"({"name":")" + name + R"(","shape":)" + shape + R"(,"datatype":")" + dtype + R"(","data":)" + data + "}";
}

std::string body_of(const std::string& inputs, const std::string& more = "") {
  return R"({"inputs":[)" + inputs + "]" + more + "}";
}

constexpr const char* kHead = R"({"model_name":"echo","model_version":"1","parameters":{"p":7},"outputs":[)";

void expect_data(const std::string& dtype, const std::string& shape, const std::string& data,
                 const std::string& echoed) {
  expect(ask("echo", "infer", body_of(input("v", dtype, shape, data))), 200,
         std::string(kHead) + R"({"name":"v","datatype":")" + dtype + R"(","shape":)" + shape + R"(,"data":)" + echoed +
             "}]}",
         dtype + " " + data);
}

void expect_refusal(const std::string& body, const std::string& part, std::vector<Header> headers = {},
                    int status = 400, const char* model = "echo") {
  const Answer answer = ask(model, "infer", body, std::move(headers));
  if (answer.status != status || answer.body.find(part) == std::string::npos ||
      answer.body.rfind(R"({"error":")", 0) != 0)
    broken(body + "\n  gives " + std::to_string(answer.status) + " " + answer.body + "\n  without " + part);
}

void elements_are_exact() {
  expect_data("FP32", "[1,4]", "[0.1,2,1e-7,16777217]", "[0.1,2.0,1e-07,16777216.0]");
  expect_data("FP32", "[1,3]", "[NaN,Infinity,-Infinity]", "[NaN,Infinity,-Infinity]");
  expect_data("FP64", "[1,4]", "[0.1,5e-324,1.7976931348623157e308,-0.0]", "[0.1,5e-324,1.7976931348623157e+308,-0.0]");
  expect_data("INT64", "[2]", "[9223372036854775807,-9223372036854775808]",
              "[9223372036854775807,-9223372036854775808]");
  expect_data("UINT64", "[2]", "[18446744073709551615,0]", "[18446744073709551615,0]");
  expect_data("INT8", "[2,1]", "[[-128],[127]]", "[-128,127]");
  expect_data("UINT8", "[2]", "[0,255]", "[0,255]");
  expect_data("INT16", "[2]", "[-32768,32767]", "[-32768,32767]");
  expect_data("UINT16", "[1]", "[65535]", "[65535]");
  expect_data("INT32", "[2]", "[-2147483648,2147483647]", "[-2147483648,2147483647]");
  expect_data("UINT32", "[1]", "[4294967295]", "[4294967295]");
  expect_data("BOOL", "[2]", "[true, false]", "[true,false]");
  expect_data("BYTES", "[1,3]", R"(["a\u0000\"\n", "", "\ud83d\ude00"])",
              "[\"a\\u0000\\\"\\u000a\",\"\",\"\xF0\x9F\x98\x80\"]");
  expect_data("FP32", "[1,0]", "[]", "[]");
  expect_data("FP32", "[]", "[1.5]", "[1.5]");
  expect_data("INT32", "[1,2,2]", "[[[1,2],[3,4]]]", "[1,2,3,4]");
}

void wrong_data_are_refused() {
  const auto refuse = [](const char* dtype, const char* shape, const char* data, const char* part) {
    expect_refusal(body_of(input("v", dtype, shape, data)), part);
  };
  refuse("INT8", "[1]", "[128]", "128 is not in the range from -128 to 127");
  refuse("UINT16", "[1]", "[65536]", "65536 is not in the range");
  refuse("INT32", "[1]", "[-2147483649]", "is not in the range");
  refuse("FP32", "[1]", "[1e39]", "too large for FP32");
  refuse("FP64", "[1]", "[1e400]", "Unable to parse 'data'");
  refuse("INT64", "[1]", "[9223372036854775808]", "non-signed-integer");
  refuse("UINT64", "[1]", "[18446744073709551616]", "non-unsigned-integer");
  refuse("UINT8", "[1]", "[-1]", "non-unsigned-integer");
  refuse("INT32", "[1]", "[1.0]", "non-signed-integer");
  refuse("INT32", "[1]", "[true]", "non-signed-integer");
  refuse("BOOL", "[1]", "[1]", "non-boolean");
  refuse("FP32", "[1]", "[\"1\"]", "non-number");
  refuse("FP32", "[1]", "[null]", "non-number");
  refuse("FP32", "[1]", "[nan]", "non-number");
  refuse("BYTES", "[1]", "[1]", "non-string");
  refuse("BYTES", "[1]", "[\"\xFF\"]", "UTF-8");
  refuse("FP32", "[2]", "[1]", "Shape does not match");
  refuse("FP32", "[2]", "[1,2,3]", "Shape does not match");
  refuse("BYTES", "[2]", R"(["a"])", "Shape does not match");
  refuse("BYTES", "[1]", R"(["a","b"])", "Shape does not match");
  refuse("FP32", "[1000000000000]", "[1]", "Shape does not match");  // without memory for them
  refuse("FP32", "[4611686018427387904,4611686018427387904]", "[1]", "too large extents");
  refuse("FP32", "[0,4611686018427387904,4611686018427387904]", "[]", "too large extents");
  refuse("FP32", "[9223372036854775808]", "[1]", "too large extents");
  refuse("FP32", "[-1]", "[1]", "Unable to parse 'shape'");
  refuse("FP32", "[1.0]", "[1]", "Unable to parse 'shape'");
  refuse("FP32", "3", "[1]", "Unable to parse 'shape'");
  refuse("FP32", "[0,2]", "[]", "a batch of 0 rows");
  refuse("FP32", "[4294967296,0]", "[]", "a batch of 4294967296 rows");
  refuse("FP32", "[1]", "1", "non-array as array");
  refuse("FP16", "[1]", "[1]", "receiving FP16 data via JSON is not supported");
  refuse("BF16", "[1]", "[1]", "receiving BF16 data via JSON is not supported");
  refuse("XY", "[1]", "[1]", "invalid datatype");
  expect_data("FP32", "[1]", std::string(64, '[') + "1" + std::string(64, ']'), "[1.0]");
  refuse("FP32", "[1]", (std::string(65, '[') + "1" + std::string(65, ']')).c_str(), "nested too deeply");
}

void malformed_bodies_are_refused() {
  const std::string good = input("x", "FP32", "[1,1]", "[1]");
  expect_refusal("{", "failed to parse the request JSON buffer");
  expect_refusal("[]", "non-existing object member 'inputs'");
  expect_refusal("3", "non-existing object member 'inputs'");
  expect_refusal("{}", "non-existing object member 'inputs'");
  expect_refusal(R"({"inputs":3})", "Unable to parse 'inputs'");
  expect_refusal(R"({"inputs":[3]})", "But no field is set");
  expect_refusal(R"({"inputs":[{}]})", "But no field is set");
  expect_refusal(body_of(R"({"shape":[1],"datatype":"FP32","data":[1]})"), "member 'name'");
  expect_refusal(body_of(R"({"name":"x","datatype":"FP32","data":[1]})"), "member 'shape'");
  expect_refusal(body_of(R"({"name":"x","shape":[1],"data":[1]})"), "member 'datatype'");
  expect_refusal(body_of(R"({"name":"a\u0000","shape":[1],"datatype":"FP32","data":[1]})"), "NUL");
  expect_refusal(body_of(good) + " more", "failed to parse the request JSON buffer");
  expect_refusal(body_of(good, R"(,"id":3)"), "Unable to parse 'id'");
  expect_refusal(body_of(good, R"(,"other":[01])"), "failed to parse the request JSON buffer");
  expect_refusal(body_of(good, ",\"other\":" + std::string(100'000, '[')), "");
  expect_refusal(body_of(good, ",\"other\":" + std::string(100, '[') + std::string(100, ']')), "nested too deeply");
  expect_refusal(body_of(good, R"(,"outputs":3)"), "Unable to parse 'outputs'");
  expect_refusal(body_of(good, R"(,"outputs":[{}])"), "member 'name'");
  expect_refusal(body_of(good, R"(,"parameters":3)"), "failed to get request params");
  expect_refusal(body_of(good, R"(,"parameters":{"a":null})"), "parameter 'a' has invalid type");
  expect_refusal(body_of(good, R"(,"parameters":{"triton_a":1})"), "reserved");
  expect_refusal(body_of(good, R"(,"parameters":{"priority":-1})"), "Unable to parse 'priority'");
  expect_refusal(body_of(good, R"(,"parameters":{"sequence_id":-1})"), "Unable to parse 'sequence_id'");
  expect_refusal(body_of(good), "Request for unknown model", {}, 404, "unknown");
  expect_refusal(body_of(good), "decoupled transaction policy", {}, 501, "stream");
  expect_refusal(body_of(good), "it fails", {}, 500, "fails");
  expect_refusal(body_of(good), "no response", {}, 500, "none");
}

void binary_and_json_are_mixed() {
  const std::string one("\0\0\x80\x3F", 4), two("\0\0\0\x40", 4);
  const auto binary = [](const char* name, const char* size, const char* more = "") {
    return std::string(R"({"name":")") + name +
           R"(","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":)" + size + "}" + more + "}";
  };
  const auto size_of = [](const std::string& head) { return std::to_string(head.size()); };
  const std::string head = body_of(binary("a", "4") + "," + input("b", "FP32", "[1,1]", "[3]") + "," + binary("c", "4"),
                                   R"(,"outputs":[{"name":"c","parameters":{"binary_data":true}},{"name":"b"},)"
                                   R"({"name":"a","parameters":{"binary_data":true}}])");
  const std::string size = size_of(head);
  const Answer mixed = ask("echo", "infer", head + one + two, {{"inference-header-content-length", size}});
  const std::string json = std::string(kHead) +
                           R"({"name":"a","datatype":"FP32","shape":[1,1],"parameters":{"binary_data_size":4}},)"
                           R"({"name":"b","datatype":"FP32","shape":[1,1],"data":[3.0]},)"
                           R"({"name":"c","datatype":"FP32","shape":[1,1],"parameters":{"binary_data_size":4}}]})";
  expect(mixed, 200, json + one + two, "mixed tensors");
  require(mixed.headers == "Inference-Header-Content-Length: " + size_of(json) + "\r\n", "the size of the JSON");
  require(mixed.content_type == "application/octet-stream", "the type of binary answers");

  const std::string alone = body_of(binary("a", "4"));
  const std::string alone_size = size_of(alone);
  const std::vector<Header> sized{{"inference-header-content-length", alone_size}};
  expect_refusal(alone + one + two, "unexpected additional input data for model 'echo'", sized);
  expect_refusal(alone + "abc", "unexpected size for input 'a', expecting 1 additional bytes for model 'echo'", sized);
  expect_refusal(alone, "expecting 4 additional bytes");
  const std::string wrong = body_of(binary("a", "3"));
  const std::string wrong_size = size_of(wrong);
  expect_refusal(wrong + "abc", "Expected 4, got 3", {{"inference-header-content-length", wrong_size}});
  expect_refusal(body_of(binary("a", "18446744073709551615")), "unexpected size");
  expect_refusal(body_of(binary("a", "-1")), "Unable to parse 'binary_data_size'");
  expect_refusal(body_of(binary("a", "4", R"(,"data":[1])")), "But set 'data' 'binary_data_size'");
  for (const char* length : {"a", "-1", "99999", "1e1", "+5", "18446744073709551616", "0x10", "5 5"})
    expect_refusal(alone, "inference header size should be in range", {{"inference-header-content-length", length}});

  const Answer raw = ask("echo", "infer", "abc", {{"inference-header-content-length", "0"}});
  require(raw.status == 200 && raw.body.substr(raw.body.size() - 3) == "abc", "a body without JSON");
  const std::string large(1 << 20, 'z');
  const Answer large_raw = ask("echo", "infer", large, {{"inference-header-content-length", "0"}});
  require(large_raw.body.substr(large_raw.body.size() - large.size()) == large, "a large output");
  const Answer all =
      ask("echo", "infer", body_of(input("x", "FP32", "[1,1]", "[2]"), R"(,"parameters":{"binary_data_output":true})"));
  require(all.body.substr(all.body.size() - 4) == two, "binary_data_output");
}

void members_come_in_any_order() {
  expect(
      ask("echo", "infer", R"({"id":"a\"b","inputs":[{"data":["q","r"],"datatype":"BYTES","shape":[2],"name":"t"}]})"),
      200,
      std::string(R"({"id":"a\"b",)") + (kHead + 1) +
          R"({"name":"t","datatype":"BYTES","shape":[2],"data":["q","r"]}]})",
      "data before the dtype");
  expect(
      ask("echo", "infer", R"({"\u0069nputs":[{"n\u0061me":"t","shape":[1],"datatype":"BYTES","d\u0061ta":["q"]}]})"),
      200, std::string(kHead) + R"({"name":"t","datatype":"BYTES","shape":[1],"data":["q"]}]})", "escaped names");
  expect_refusal(R"({"inputs":[{"d\u0061ta":["q"],"name":"t","shape":[1],"datatype":"BYTES"}]})", "member 'data'");
}

void classes_are_the_highest_values() {
  const auto classes = [](const char* dtype, const char* data, const char* count) {
    return ask("echo", "infer",
               body_of(input("x", dtype, "[2,3]", data),
                       std::string(R"(,"outputs":[{"name":"x","parameters":{"classification":)") + count + "}}]"));
  };
  expect(classes("FP32", "[1,3,2,5,5,NaN]", "2"), 200,
         std::string(kHead) +
             R"({"name":"x","datatype":"BYTES","shape":[2,2],"data":["3.000000:1:one","2.000000:2","nan:2",)"
             R"("5.000000:0"]}]})",
         "classes");
  expect(classes("INT64", "[1,3,2,5,5,4]", "9"), 200,
         std::string(kHead) +
             R"({"name":"x","datatype":"BYTES","shape":[2,3],"data":["3:1:one","2:2","1:0","5:0","5:1:one","4:2"]}]})",
         "classes of integers");
  require(
      classes("BOOL", "[true,true,true,true,true,true]", "1").body.find("unsupported type 'BOOL'") != std::string::npos,
      "classes of booleans");
}

void shared_memory_is_left_to_the_server() {
  require(ask("echo", "infer",
              body_of(R"({"name":"x","shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r"}})"))
                  .status == 0,
          "an input in shared memory");
  require(ask("echo", "infer",
              body_of(input("x", "FP32", "[1,1]", "[1]"),
                      R"(,"outputs":[{"name":"x","parameters":{"shared_memory_region":"r"}}])"))
                  .status == 0,
          "an output in shared memory");
}

void large_json_is_read_on_another_thread() {
  std::string numbers, shown;
  constexpr int kNumbers = 200'000;
  for (int number = 0; number < kNumbers; ++number) {
    numbers += (number ? "," : "") + std::to_string(number % 10);
    shown += (number ? "," : "") + std::to_string(number % 10) + ".0";
  }
  const std::string data = "[" + numbers + "]", echoed = "[" + shown + "]";
  const std::string shape = "[1," + std::to_string(kNumbers) + "]";
  expect_data("FP32", shape, data, echoed);
  expect_refusal(body_of(input("v", "FP32", "[1,3]", data)), "Shape does not match");
  expect_refusal(body_of(input("v", "FP32", shape, data) +
                         R"(,{"name":"x","shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r"}})"),
                 "names shared memory");
  const Answer generated = ask("echo", "generate", R"({"x":)" + data + "}");
  require(generated.status == 200 && generated.body.find(echoed) != std::string::npos, "a large input of generate");
  require(ask("unknown", "generate", R"({"x":)" + data + "}").status == 404, "a large input of an unknown model");
}

void generate_takes_members_as_inputs() {
  const std::string end = R"(,"model_name":"echo","model_version":"1",)";
  const auto expect_generated = [](const char* body, int status, const std::string& answer) {
    expect(ask("echo", "generate", body), status, answer, body);
  };
  expect_generated(R"({"x":1.5,"n":3})", 200, R"({"model_name":"echo","model_version":"1","n":3,"p":7,"x":1.5})");
  expect_generated(R"({"x":[1,2],"t":"a","id":"i","parameters":{"a":1},"other":true})", 200,
                   R"({"id":"i")" + end + R"("p":7,"t":"a","x":[1.0,2.0]})");
  expect_generated(R"({"b":[[true,false],[true,true]]})", 200, R"({"b":[true,false,true,true])" + end + R"("p":7})");
  expect_generated(R"({"n":[1,2]})", 400,
                   R"({"error":"The schema can not convert input 'n' to tensor with proper shape"})");
  expect_generated(
      R"({"n":"a"})", 400,
      R"({"error":"Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"})");
  expect_generated(R"([])", 400, R"({"error":"attempt to get members for non-object"})");
  expect_generated(R"({"x":1,"id":3})", 400,
                   R"({"error":"Unable to parse 'id': attempt to access JSON non-string as string"})");
  require(ask("echo", "generate", R"({"x":1,"parameters":3})").status == 400, "parameters that are no object");
  require(ask("unknown", "generate", R"({"x":1})").status == 404, "an unknown model");
  require(ask("fails", "generate", R"({"x":1})").status == 500, "a model that fails");
  require(ask("stream", "generate", R"({"x":1})").status == 400, "several responses");
}

void streams_have_an_event_for_each_response() {
  const std::string event = "data: {\"model_name\":\"stream\",\"model_version\":\"1\",\"p\":7,\"x\":1.0}\n\n";
  for (int round = 0; round < 4; ++round) {  // the last response is sent with its flag, or alone
    const Answer answer = ask("stream", "generate_stream", R"({"x":1})");
    const std::string two = event + event, three = two + event;
    require(answer.body == two || answer.body == three, "events: " + answer.body);
    require(answer.content_type == "text/event-stream; charset=utf-8", "the type of streams");
  }
  expect(ask("fails", "generate_stream", R"({"x":1})"), 500, "data: {\"error\":\"it fails\"}\n\n",
         "a stream that fails");
  expect(ask("none", "generate_stream", R"({"x":1})"), 200, "", "a stream without responses");
}

}  // namespace

int main() {
  elements_are_exact();
  wrong_data_are_refused();
  malformed_bodies_are_refused();
  binary_and_json_are_mixed();
  members_come_in_any_order();
  classes_are_the_highest_values();
  shared_memory_is_left_to_the_server();
  large_json_is_read_on_another_thread();
  generate_takes_members_as_inputs();
  streams_have_an_event_for_each_response();
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
