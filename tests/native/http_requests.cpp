// Requests to infer and generate over HTTP, and their answers, beside a server that answers with the inputs.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "echo_server.h"
#include "edge/answer_coding.h"
#include "edge/route_options.h"
#include "frames/descriptor.h"
#include "frames/failure.h"
#include "kserve/control_body.h"
#include "kserve/infer.h"
#include "kserve/v2_path.h"

using namespace pytriton::http;

namespace {

struct Answer {
  int status;
  std::string body, content_type, headers;
};

Answer ask(const std::string& model, const char* action, const std::string& body, std::vector<Header> headers = {}) {
  TestExchange exchange(body, std::move(headers));
  std::atomic<bool> is_left{false};
  const Fallback fall_back = [&] { is_left = true; };
  if (!std::strcmp(action, "infer")) {
    infer_v2(nullptr, exchange, {model, -1}, fall_back);
  } else {
    generate(nullptr, exchange, {model, -1}, !std::strcmp(action, "generate_stream"), fall_back);
  }
  exchange.wait_unless(is_left);
  if (is_left) return {0, "", "", ""};
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
  expect_data("FP32", "[1,4]", "[0.1,2,1e-7,16777217]", "[0.1,2.0,1e-7,16777216.0]");
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
              "[\"a\\u0000\\\"\\n\",\"\",\"\xF0\x9F\x98\x80\"]");
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

// Answers requests for the status of regions, as the server's own endpoint does.
class Status {
 public:
  explicit Status(std::string region)
      : region_(std::move(region)), listener_(listen_on_path()), thread_([this] { serve(); }) {}
  ~Status() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    ::unlink(kPath);
  }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  static constexpr const char* kPath = "status.sock";
  std::atomic<int> asked{0};

 private:
  static pytriton::Descriptor listen_on_path() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, kPath);  // NOLINT: it is short
    ::unlink(kPath);
    pytriton::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                ::listen(listener.get(), 8) == 0,
            "there is a socket");
    return listener;
  }

  void serve() {
    while (true) {
      const pytriton::Descriptor socket(::accept(listener_.get(), nullptr, nullptr));
      if (!socket) return;
      char data[4096];
      const ssize_t size = ::recv(socket.get(), data, sizeof data, 0);
      const std::string_view request(data, size > 0 ? static_cast<size_t>(size) : 0);
      ++asked;
      const bool is_system = request.find("/systemsharedmemory/region/r/status ") != std::string_view::npos;
      const bool is_gpu = request.find("/cudasharedmemory/region/gpu/status ") != std::string_view::npos;
      const std::string body = is_system ? region_ : "[]";
      const std::string answer = std::string("HTTP/1.1 ") + (is_system || is_gpu ? "200 OK" : "404 Not Found") +
                                 "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
      static_cast<void>(!::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
    }
  }

  const std::string region_;
  pytriton::Descriptor listener_;
  std::thread thread_;
};

void shared_memory_is_read_and_written() {
  const std::string key = "pytriton-test-" + std::to_string(::getpid()), path = "/dev/shm/" + key;
  pytriton::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const float numbers[] = {1, 2, 3, 4};
  require(::pwrite(file.get(), numbers, sizeof numbers, 8) == sizeof numbers, "there is shared memory");
  RouteOptions options;
  options.server_socket = Status::kPath;
  set_route_options(options);
  {
    Status status(R"([{"name":"r","key":"/)" + key + R"(","offset":4,"byte_size":20}])");
    const auto part = [](const char* region, const char* offset, const char* size) {
      return std::string(R"("parameters":{"shared_memory_region":")") + region + R"(","shared_memory_offset":)" +
             offset + R"(,"shared_memory_byte_size":)" + size + "}";
    };
    const auto given = [&](const std::string& from, const std::string& more = "") {
      return ask("echo", "infer", body_of(R"({"name":"x","shape":[1,2],"datatype":"FP32",)" + from + "}", more));
    };
    const Answer read = given(part("r", "4", "8"));
    require(read.status == 200 && read.body.find(R"("data":[1.0,2.0])") != std::string::npos, "an input: " + read.body);
    require(given(part("r", "12", "8")).body.find(R"("data":[3.0,4.0])") != std::string::npos, "at its end");
    require(status.asked == 1, "a region is looked up once");
    const std::string wanted = R"(,"outputs":[{"name":"x",)" + part("r", "0", "8") + "}]";
    require(given(part("r", "12", "8"), wanted).status == 200, "an output");
    float written[2] = {};
    require(::pread(file.get(), written, sizeof written, 4) == sizeof written && written[0] == 3 && written[1] == 4,
            "it is written where the region begins");
    for (const char* offset : {"13", "20", "18446744073709551615", "18446744073709551608"})
      require(given(part("r", offset, "8")).status == 400, std::string("beyond the region: ") + offset);
    require(given(part("r", "4", "18446744073709551608")).status == 400, "a size that overflows");
    require(given(part("r", "4", "4")).body.find("Expected 8, got 4") != std::string::npos, "another size");
    require(given(part("gpu", "0", "8")).status == 0, "memory of a GPU is left to the server's own endpoint");
    require(given(part("none", "0", "8")).status == 404, "an unknown region");
    require(::ftruncate(file.get(), 10) == 0, "it becomes shorter");
    require(given(part("r", "4", "8")).status == 400, "a shorter region cannot be read");
    const Answer output = ask("echo", "infer", body_of(input("x", "FP32", "[1,2]", "[1,2]"), wanted));
    require(output.status == 400 && output.body.find("shorter") != std::string::npos, "nor written: " + output.body);
  }
  ::unlink(path.c_str());
  set_route_options({});
}

void shared_memory_is_looked_up() {
  const auto region = [](const std::string& more) {
    return body_of(R"({"name":"x","shape":[1,1],"datatype":"FP32","parameters":{"shared_memory_region":"r")" + more +
                   "}}");
  };
  const auto output = [](const std::string& more) {
    return body_of(input("x", "FP32", "[1,1]", "[1]"),
                   R"(,"outputs":[{"name":"x","parameters":{"shared_memory_region":"r")" + more + "}}]");
  };
  // There is nobody to ask here.
  for (const std::string& body : {region(""), region(R"(,"shared_memory_byte_size":4)"), output("")})
    expect_refusal(body, "the server's own endpoint cannot be reached", {}, 503);
  for (const char* size : {"-1", "1.5", "\"1\"", "18446744073709551616", "null"})
    expect_refusal(region(std::string(R"(,"shared_memory_byte_size":)") + size),
                   "Unable to parse 'shared_memory_byte_size'");
  expect_refusal(region(R"(,"shared_memory_offset":-1)"), "Unable to parse 'shared_memory_offset'");
  expect_refusal(region(R"(,"binary_data_size":4)"), "But set 'binary_data_size' 'shared_memory_region'");
  expect_refusal(output(R"(,"binary_data":true)"), "can't set both 'shared_memory_region' and 'binary_data'");
  expect_refusal(output(R"(,"classification":0)"), "can't set both 'shared_memory_region' and 'classification'");
}

void traced_requests_are_left_to_the_server_when_they_are_right() {
  RouteOptions options = route_options();
  options.is_traced = true;
  set_route_options(options);
  require(ask("echo", "infer", body_of(input("x", "FP32", "[1,1]", "[1]"))).status == 0, "an inference");
  require(ask("echo", "generate", R"({"x":1})").status == 0, "generate");
  expect_refusal(body_of(input("x", "FP32", "[1,1]", "[1]")) + "x", "failed to parse");
  require(ask("echo", "generate", R"({"x":[[)").status == 400, "wrong JSON");
  options.is_traced = false;
  set_route_options(options);
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

void codings_are_chosen_by_their_weights() {
  const auto coding = [](const std::string& accepted, const std::string& second = "") {
    Request request;
    request.headers = {{"Accept-Encoding", accepted}};
    if (!second.empty()) request.headers.push_back({"accept-encoding", second});
    return coding_of(request);
  };
  require(coding_of(Request()) == Coding::identity, "nothing is accepted");
  require(coding("gzip") == Coding::gzip && coding("deflate") == Coding::deflate, "a coding alone");
  require(coding("gzip, deflate") == Coding::identity && coding("gzip", "deflate") == Coding::identity, "a list");
  require(coding("gzip;q=0", "deflate;q=0.001") == Coding::deflate, "a weight of 0");
  for (const char* weight : {"1e999", "1.0000", "2", "-0", "0.5.", "", "0,5", " 1", "\"1\""})
    require(coding(std::string("gzip;q=") + weight) == Coding::identity, std::string("no weight: ") + weight);
  require(coding("identity;q=0, gzip;q=0.1, deflate;q=0.2") == Coding::deflate, "the best but identity");
  std::string many;
  for (int count = 0; count < 10'000; ++count) many += "x;q=0,";
  require(coding(many + "gzip") == Coding::identity, "too many to read");
}

void compressed_answers_are_marked() {
  for (const char* kind : {"gzip", "deflate"}) {
    for (const size_t count : {1UL, 100'000UL}) {  // at once, and on another thread
      std::string data = "[1";
      for (size_t index = 1; index < count; ++index) data += ",1";
      const std::string body = body_of(input("x", "FP32", "[1," + std::to_string(count) + "]", data + "]"));
      const Answer answer = ask("echo", "infer", body, {{"Accept-Encoding", kind}});
      require(answer.status == 200 && answer.headers == std::string("Content-Encoding: ") + kind + "\r\n",
              "an answer is compressed: " + answer.headers);
      require(count == 1 || answer.body.size() < body.size() / 10, "and short");
    }
  }
}

void paths_are_those_of_the_table() {
  const auto is = [](const char* path, Action action, const char* anew) {
    const V2Path found = parse_v2_path(path);
    require(found.action == action, std::string("the action of ") + path);
    if (action != Action::none && *anew)
      require(server_target(found).value_or("") == anew, std::string(path) + " is written anew");
  };
  is("/v2/models/m%61/versions/007/infer", Action::infer, "/v2/models/ma/versions/7/infer");
  is("/v2/models/versions/versions/1", Action::model, "");
  is("/v2/models/a/trace/setting", Action::trace, "/v2/models/a/trace/setting");
  is("/v2/trace/setting", Action::trace, "/v2/trace/setting");
  is("/v2/repository/models/a/load", Action::load, "/v2/repository/models/a/load");
  is("/v2/repository/index", Action::index, "");
  is("/v2/repository/r/index", Action::index, "");
  is("/v2/systemsharedmemory/region/a/register", Action::memory_register, "/v2/systemsharedmemory/region/a/register");
  is("/v2/cudasharedmemory/unregister", Action::memory_unregister, "/v2/cudasharedmemory/unregister");
  for (const char* path : {"/v2/",
                           "/v2/models",
                           "/v2/models/",
                           "/v2/models//infer",
                           "/v2/models/a/",
                           "/v2/models/a/infer/",
                           "/v2/models/a/versions/1/",
                           "/v2/models/a/versions/",
                           "/v2/models/a/versions/1234567890123456789/infer",
                           "/v2/models/a/versions/1/versions/1/infer",
                           "/v2/models/%/infer",
                           "/v2/models/%4/infer",
                           "/v2/models/%00/infer",
                           "/v2/models/a%0/infer",
                           "/v2/models/a/../b/infer",
                           "/v2/health",
                           "/v2/health/live/",
                           "/v2/repository/models/a",
                           "/v2/repository/models//load",
                           "/v2/repository/r/s/index",
                           "/v2/systemsharedmemory/region//status",
                           "/v2/systemsharedmemory/region/a",
                           "/v2x",
                           ""})
    is(path, Action::none, "");
  require(!server_target(parse_v2_path("/v2/repository/models/a%20b/load")), "no path has a space");
  require(!server_target(parse_v2_path("/v2/repository/models/a%2fb/load")), "nor a slash in a name");
  require(!server_target(parse_v2_path("/v2/repository/models/a%0d%0ab/load")), "nor the end of a line");
}

void bodies_of_settings_are_bounded() {
  const auto is_taken = [](Action action, std::string body) {
    const size_t size = body.size();
    body.append(kPadding, '\0');
    try {
      check_control_body(action, std::string_view(body).substr(0, size));
      return true;
    } catch (const pytriton::Failure& failure) {
      require(failure.code == pytriton::Code::invalid_argument, "a body is wrong");
      return false;
    }
  };
  require(is_taken(Action::load, "") && is_taken(Action::unload, "") && !is_taken(Action::logging, ""), "no body");
  require(is_taken(Action::load, R"({"parameters":{"config":"{}","file:1/a":"YQ=="},"x":[1]})"), "a load");
  for (const char* body : {"[]", "{", "{}x", R"({"parameters":1})", R"({"parameters":{"x":"a"}})",
                           R"({"parameters":{"config":1}})", R"({"parameters":{},"parameters":{}})",
                           R"({"parameters":{"config":"\u0000"}})", "{\"x\":[[[[[[[[[[1]]]]]]]]]]}"})
    require(!is_taken(Action::load, body), std::string("a wrong load: ") + body);
  require(is_taken(Action::unload, R"({"parameters":{"unload_dependents":true}})"), "an unload");
  require(!is_taken(Action::unload, R"({"parameters":{"unload_dependents":1}})"), "a wrong unload");
  require(is_taken(Action::trace, R"({"trace_level":["A","B"],"trace_rate":"1","trace_count":null,"x":{}})"), "traces");
  require(!is_taken(Action::trace, R"({"trace_level":[1]})"), "wrong traces");
  require(!is_taken(Action::logging, R"({"log_file":")" + std::string(kMostSettingsBytes, 'x') + R"("})"), "too long");
  require(is_taken(Action::load, R"({"parameters":{"config":")" + std::string(kMostSettingsBytes, 'x') + R"("}})"),
          "a load may be longer");
}

}  // namespace

int main() {
  codings_are_chosen_by_their_weights();
  compressed_answers_are_marked();
  paths_are_those_of_the_table();
  bodies_of_settings_are_bounded();
  elements_are_exact();
  wrong_data_are_refused();
  malformed_bodies_are_refused();
  binary_and_json_are_mixed();
  members_come_in_any_order();
  classes_are_the_highest_values();
  shared_memory_is_looked_up();
  shared_memory_is_read_and_written();
  traced_requests_are_left_to_the_server_when_they_are_right();
  large_json_is_read_on_another_thread();
  generate_takes_members_as_inputs();
  streams_have_an_event_for_each_response();
  wait_for_answers();
  require(!leftovers(), "requests and responses are deleted");
  return 0;
}
