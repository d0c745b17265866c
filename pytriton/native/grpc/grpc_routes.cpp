#include "grpc_routes.h"

#include "../edge/background.h"
#include "../edge/inflate.h"
#include "../edge/server_functions.h"
#include "../kserve/metadata.h"
#include "grpc_request.h"
#include "json_message.h"
#include "proto.h"

namespace pytriton::http {

namespace {

constexpr unsigned kServing = 1, kNotServing = 2;  // of grpc.health.v1.HealthCheckResponse

bool is_server_ready(const Edge& edge, const Loop& loop) {
  bool is_ready = false;
  check(TRITONSERVER_ServerIsReady(edge.server(), &is_ready));
  return is_ready && edge.has_models() && !loop.is_draining();
}

// The model that a request names, with its version, by its first two fields.
Target read_target(std::string_view message) {
  Target target;
  std::string version;
  ProtoReader reader(message);
  while (const unsigned field = reader.next()) {
    if (field == 1) {
      target.model = reader.text();
    } else if (field == 2) {
      version = reader.text();
    } else {
      reader.skip();
    }
  }
  target.version = read_version(version);
  return target;
}

// Whether an index is to have ready models alone.
bool read_index_request(std::string_view message) {
  bool ready_alone = false;
  ProtoReader reader(message);
  while (const unsigned field = reader.next()) {
    if (field == 1) {
      if (!reader.bytes().empty()) throw Failure(Code::unsupported, "'repository_name' specification is not supported");
    } else if (field == 2) {
      ready_alone = reader.varint() != 0;
    } else {
      reader.skip();
    }
  }
  return ready_alone;
}

bool is_ready(const GrpcCall& call) {
  TRITONSERVER_Server* const server = call.edge().server();
  bool is_so = false;
  switch (call.method().action) {
    case Action::live:
      check(TRITONSERVER_ServerIsLive(server, &is_so));
      return is_so;
    case Action::ready:
      return is_server_ready(call.edge(), call.loop());
    default: {
      const Target target = read_target(call.body());
      check(TRITONSERVER_ServerModelIsReady(server, target.model.c_str(), target.version, &is_so));
      return is_so && !call.loop().is_draining();
    }
  }
}

// What the server says, as a message.
std::string described(const GrpcCall& call) {
  TRITONSERVER_Server* const server = call.edge().server();
  const Action action = call.method().action;
  const std::string_view body = call.body();
  std::string text;
  switch (action) {
    case Action::metadata:
      append_fields(text, describe(server, action, {}), kServerMetadata);
      break;
    case Action::model:
      append_fields(text, describe(server, action, read_target(body)), kModelMetadata);
      break;
    case Action::config:
      append_messages(text, 1, describe(server, action, read_target(body)), kModelConfig);
      break;
    case Action::statistics:
      append_fields(text, describe(server, action, read_target(body)), kStatistics);
      break;
    default:
      append_messages(text, 1, describe(server, action, {}, read_index_request(body)), kIndexEntry);
  }
  return text;
}

void send_description(GrpcCall& call) {
  const auto send = [](GrpcCall& to) { answer_or_fail(to, [&] { to.answer(message_of(described(to)), true, true); }); };
  // As over HTTP: those of all models may take long, and the index waits while the repository is read.
  const Action action = call.method().action;
  if (action != Action::statistics && action != Action::index) return send(call);
  run_waiting(call.connection().peer(), [send, &call, reference = Reference<GrpcCall>(call)] { send(call); });
}

void answer_call(GrpcCall& call) {
  answer_or_fail(call, [&] {
    std::string text;
    switch (call.method().method) {
      case Method::ready:
        if (is_ready(call)) ProtoWriter(text).flag(1, true);  // false is the default, and not sent
        return call.answer(message_of(std::move(text)), true, true);
      case Method::health:
        ProtoWriter(text).varint(1, is_server_ready(call.edge(), call.loop()) ? kServing : kNotServing);
        return call.answer(message_of(std::move(text)), true, true);
      case Method::reflection:
        return call.answer(message_of(reflect(call.body())), true, false);
      case Method::described:
        return send_description(call);
      case Method::infer:
      case Method::stream_infer:
        return infer_grpc(call);
      default:
        return control_grpc(call);
    }
  });
}

void refuse(GrpcCall& call, Inflated result, uint64_t most) {
  switch (result) {
    case Inflated::too_long:
      return call.answer(nullptr, true, true, grpc::kResourceExhausted,
                         "the message has more than " + std::to_string(most) + " bytes when it is decompressed");
    case Inflated::no_memory:
      return call.answer(nullptr, true, true, grpc::kUnavailable,
                         "there is no memory for the message when it is decompressed");
    case Inflated::no_library:
      return call.answer(nullptr, true, true, grpc::kUnimplemented, "there is no zlib: send messages uncompressed");
    default:
      return call.answer(nullptr, true, true, grpc::kInternal, "the message is not compressed as grpc-encoding says");
  }
}

// On other threads, as it may take long.
void inflate_and_answer(GrpcCall& call) {
  const Config& config = call.edge().config();
  const uint64_t most = call.method().is_large() ? config.limits.max_body_bytes : config.max_json_bytes;
  const auto inflater = std::make_shared<Inflater>(call, call.body(), most);
  run_in_steps(call.connection().peer(),
               [&call, reference = Reference<GrpcCall>(call), inflater, most, held = call.hold()] {
                 const Inflated result = inflater->step();
                 if (result == Inflated::unfinished) return true;
                 call.loop().post([&call, reference, inflater, result, most, held] {
                   if (result != Inflated::complete) return refuse(call, result, most);
                   call.replace_body(inflater->content, inflater->size, std::move(inflater->charge));
                   answer_call(call);
                 });
                 return false;
               });
}

}  // namespace

void route_grpc(GrpcCall& call) {
  const Edge& edge = call.edge();
  const size_t most = edge.config().max_requests;
  if (most && edge.requests_in_flight() > most)
    return call.fail(Failure(Code::unavailable, "the server has too many requests in flight"), {});
  if (!call.is_compressed()) return answer_call(call);
  if (call.stream()->compression == Compression::known) return inflate_and_answer(call);
  call.answer(nullptr, true, true, grpc::kUnimplemented, "grpc-encoding has to be gzip, deflate or identity");
}

}  // namespace pytriton::http
