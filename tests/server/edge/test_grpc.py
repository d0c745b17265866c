"""gRPC at the edge: the same requests to it and to Triton's own endpoint, streams, hostile clients and stops."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub as Stub

from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonValidationError
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig
from tests.server.conftest import LOCALHOST
from tests.server.edge.models import DTYPES, server_of_models
from tests.server.own_server import server_of, serving
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = pytest.mark.either_proxy

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HOSTILE_CONNECTIONS = 300
STOPPED_STREAMS = 300
OPTIONS = {"grpc_header_forward_pattern": "x-.*"}


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TritonConfig]]:
    """Configurations of two servers, after who serves their gRPC."""
    with ExitStack() as stack:
        found = {}
        for name in ("edge", "triton"):
            served = server_of_models(tmp_path_factory.mktemp(name), grpc_frontend=name, **OPTIONS)
            found[name] = stack.enter_context(served)
        yield found


@pytest.fixture(scope="module")
def stubs(configs: dict[str, TritonConfig]) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        channels = {
            name: stack.enter_context(grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}"))
            for name, config in configs.items()
        }
        yield {name: Stub(channel) for name, channel in channels.items()}


@pytest.fixture
def edge(configs: dict[str, TritonConfig], stubs: dict[str, Any]) -> Iterator[Any]:
    """The stub of the edge, whose server has to be the same process afterwards."""
    pid = server_of(configs["edge"])
    yield stubs["edge"]
    assert server_of(configs["edge"]) == pid


def request(model: str, *inputs: tuple[str, str, list[int], bytes], **options: Any) -> Any:
    made = pb.ModelInferRequest(model_name=model, **options)
    for name, dtype, shape, raw in inputs:
        made.inputs.add(name=name, datatype=dtype, shape=shape)
        made.raw_input_contents.append(raw)
    return made


def typed(dtype: str, field: str, values: list[Any]) -> Any:
    made = pb.ModelInferRequest(model_name=f"echo_{dtype}")
    getattr(made.inputs.add(name="x", datatype=dtype, shape=[1, len(values)]).contents, field).extend(values)
    return made


def with_parameters(made: Any, **parameters: Any) -> Any:
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(made.parameters[name], kind, value)
    return made


def floats(*values: float, model: str = "echo_FP32", **options: Any) -> Any:
    raw = np.array(values, np.float32).tobytes()
    return request(model, ("x", "FP32", [1, len(values)], raw), **options)


def classes(count: int) -> Any:
    made = request("labels", ("x", "FP32", [2, 3], np.array([[1, 3, 2], [6, 5, 4]], np.float32).tobytes()))
    made.outputs.add(name="x").parameters["classification"].int64_param = count
    return made


def spoken(model: str, count: int, **options: Any) -> Any:
    text = len(b"hi").to_bytes(4, "little") + b"hi"
    inputs = ("text", "BYTES", [1, 1], text), ("count", "INT32", [1, 1], count.to_bytes(4, "little"))
    return request(model, *inputs, **options)


CASES: dict[str, Callable[[], Any]] = {
    **{
        f"raw {name}": lambda name=name, dtype=dtype: request(
            f"echo_{name}",
            ("x", name, [1, 2], b"\3\0\0\0abc\0\0\0\0" if name == "BYTES" else np.ones(2, dtype).tobytes()),
        )
        for name, dtype in DTYPES.items()
    },
    "typed BOOL": lambda: typed("BOOL", "bool_contents", [True, False]),
    "typed INT8": lambda: typed("INT8", "int_contents", [-1, 127]),
    "typed INT16": lambda: typed("INT16", "int_contents", [-300, 300]),
    "typed INT32": lambda: typed("INT32", "int_contents", [-1, 2**31 - 1]),
    "typed INT64": lambda: typed("INT64", "int64_contents", [-1, 2**62]),
    "typed UINT8": lambda: typed("UINT8", "uint_contents", [0, 255]),
    "typed UINT16": lambda: typed("UINT16", "uint_contents", [0, 65535]),
    "typed UINT32": lambda: typed("UINT32", "uint_contents", [0, 2**32 - 1]),
    "typed UINT64": lambda: typed("UINT64", "uint64_contents", [0, 2**63]),
    "typed FP32": lambda: typed("FP32", "fp32_contents", [1.5, float("inf")]),
    "typed FP64": lambda: typed("FP64", "fp64_contents", [1.5, -0.0]),
    "typed BYTES": lambda: typed("BYTES", "bytes_contents", [b"", b"ab\0c"]),
    "an id": lambda: floats(1, id="abc"),
    "a version": lambda: floats(1, model="versions", model_version="1"),
    "an empty batch": lambda: request("echo_FP32", ("x", "FP32", [1, 0], b"")),
    "no batch axis": lambda: request("flat", ("x", "FP32", [2, 2], np.ones(4, np.float32).tobytes())),
    "a large tensor": lambda: floats(*range(100_000)),
    "parameters": lambda: with_parameters(floats(1, model="told"), a=1, b=True, c="text"),
    "a requested output": lambda: request(
        "pair",
        ("a", "INT32", [1, 2], bytes(8)),
        ("b", "INT32", [1, 2], bytes(8)),
        outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="sum")],
    ),
    "classes": lambda: classes(2),
    "more classes than there are": lambda: classes(9),
    "two inputs of one model": lambda: spoken("words", 3),
    "a sequence's flags": lambda: with_parameters(floats(1), sequence_start=True, sequence_end=True),
    # What is refused
    "an unknown model": lambda: floats(1, model="nothing"),
    "an unknown version": lambda: floats(1, model_version="99"),
    "a version that is no number": lambda: floats(1, model_version="x"),
    "no input": lambda: pb.ModelInferRequest(model_name="echo_FP32"),
    "an unknown input": lambda: request("echo_FP32", ("z", "FP32", [1, 1], bytes(4))),
    "an unknown dtype": lambda: request("echo_FP32", ("x", "FP99", [1, 1], bytes(4))),
    "another dtype": lambda: request("echo_FP32", ("x", "INT32", [1, 1], bytes(4))),
    "too few bytes": lambda: request("echo_FP32", ("x", "FP32", [1, 2], bytes(4))),
    "contents of another dtype": lambda: typed("FP32", "int_contents", [1]),
    "another shape": lambda: request("pair", ("a", "INT32", [1, 3], bytes(12)), ("b", "INT32", [1, 3], bytes(12))),
    "a reserved parameter": lambda: with_parameters(floats(1), triton_other=1),
    "a decoupled model": lambda: spoken("stream", 2),
    "an error of the model": lambda: floats(1, model="failing"),
    "an unknown output": lambda: floats(1, outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="nothing")]),
}


def loading(model: str, **parameters: Any) -> Any:
    return pb.RepositoryModelLoadRequest(model_name=model, parameters=parameters)


def logging(**settings: Any) -> Any:
    return pb.LogSettingsRequest(settings=settings)


def tracing(**settings: Any) -> Any:
    return pb.TraceSettingRequest(settings={name: {"value": value} for name, value in settings.items()})


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call answers, or the code with which it is refused: texts may differ."""
    try:
        return call(*arguments, timeout=DEADLINE_S, **options)
    except grpc.RpcError as error:
        return error.code()


@pytest.mark.parametrize("case", CASES)
def test_an_inference_has_the_answer_of_tritons_endpoint(edge, stubs, case):
    answers = [outcome(stub.ModelInfer, CASES[case]()) for stub in stubs.values()]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("case", CASES)
def test_a_stream_has_the_messages_of_tritons_endpoint(edge, stubs, case):
    if case in ("a version that is no number", "an unknown model", "an unknown version"):
        pytest.skip("Triton's endpoint reads these as another kind of request: see native/preload/stream_checks.cpp")
    answers = [[*stub.ModelStreamInfer(iter([CASES[case]()]), timeout=DEADLINE_S)] for stub in stubs.values()]
    for one, other in zip(*answers, strict=True):
        assert bool(one.error_message) == bool(other.error_message)
        assert one.infer_response == other.infer_response


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("ServerLive", pb.ServerLiveRequest()),
        ("ServerReady", pb.ServerReadyRequest()),
        ("ModelReady", pb.ModelReadyRequest(name="pair")),
        ("ModelReady", pb.ModelReadyRequest(name="nothing")),
        ("ModelReady", pb.ModelReadyRequest(name="pair", version="7")),
        ("ServerMetadata", pb.ServerMetadataRequest()),
        ("ModelMetadata", pb.ModelMetadataRequest(name="versions")),
        ("ModelMetadata", pb.ModelMetadataRequest(name="nothing")),
        *(("ModelConfig", pb.ModelConfigRequest(name=name)) for name in ("stream", "versions", "labels", "nothing")),
        ("ModelStatistics", pb.ModelStatisticsRequest(name="nothing")),
        ("ModelStatistics", pb.ModelStatisticsRequest(name="pair", version="x")),
        ("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)),
        ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="other")),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nothing")),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="pair", repository_name="other")),
        ("RepositoryModelLoad", loading("pair", other=pb.ModelRepositoryParameter(string_param="x"))),
        ("RepositoryModelLoad", loading("pair", config=pb.ModelRepositoryParameter(int64_param=1))),
        ("RepositoryModelLoad", loading("pair", config=pb.ModelRepositoryParameter(string_param="{"))),
        ("RepositoryModelLoad", loading("pair", **{"file:1/x": pb.ModelRepositoryParameter(string_param="x")})),
        ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="nothing")),
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="nothing")),
        ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="r", key="/nothing", byte_size=4)),
        ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="nothing")),
        ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
        ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"abcd", byte_size=4)),
        ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest()),
        ("LogSettings", pb.LogSettingsRequest()),
        ("LogSettings", logging(log_verbose_level={"uint32_param": 0}, log_info={"bool_param": True})),
        ("LogSettings", logging(log_format={"string_param": "default"})),
        ("LogSettings", logging(log_info={"string_param": "yes"})),
        ("LogSettings", logging(log_other={"bool_param": True})),
        ("TraceSetting", pb.TraceSettingRequest()),
        ("TraceSetting", pb.TraceSettingRequest(model_name="pair")),
        ("TraceSetting", pb.TraceSettingRequest(model_name="nothing")),
        ("TraceSetting", tracing(trace_rate=["7"], trace_level=["TIMESTAMPS", "TENSORS"])),
        ("TraceSetting", tracing(trace_rate=["7", "8"])),
        ("TraceSetting", tracing(trace_rate=["x"])),
        ("TraceSetting", tracing(trace_rate=[], trace_level=[])),
        ("TraceSetting", tracing(trace_level=["OFF"])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_methods_have_the_answers_of_tritons_endpoint(edge, stubs, method, message):
    answers = [outcome(getattr(stub, method), message) for stub in stubs.values()]
    assert answers[0] == answers[1]


def test_the_repository_index_names_the_models_and_statistics_count(edge):
    names = {model.name for model in edge.RepositoryIndex(pb.RepositoryIndexRequest()).models}
    assert names >= {"pair", "stream"}

    def counted() -> int:
        """Inferences of the model, which the server counts when it has sent their answers."""
        return edge.ModelStatistics(pb.ModelStatisticsRequest(name="pair")).model_stats[0].inference_count

    before = counted()
    edge.ModelInfer(CASES["a requested output"]())
    wait_for(lambda: counted() >= before + 1, "the request to be counted")


def test_a_method_that_does_not_exist_is_unimplemented(configs, edge):
    with grpc.insecure_channel(f"{LOCALHOST}:{configs['edge'].grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/Nothing")
        assert outcome(call, b"") is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_becomes_parameters(edge):
    answer = edge.ModelInfer(floats(1, model="told"), metadata=[("x-a", "b"), ("y-a", "c")])
    assert b"x-a" in answer.raw_output_contents[0]
    assert b"y-a" not in answer.raw_output_contents[0]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_requests_may_be_compressed(edge, compression):
    sent = floats(*[0.0] * 10_000)
    assert edge.ModelInfer(sent, compression=compression).raw_output_contents == sent.raw_input_contents


def test_responses_of_models_that_answer_once_keep_the_order_of_requests(edge):
    sent = [floats(number, model=("echo_FP32", "failing", "told")[number % 3], id=str(number)) for number in range(200)]
    answers = [*edge.ModelStreamInfer(iter(sent), timeout=DEADLINE_S)]
    assert [each.infer_response.id for each in answers] == [each.id for each in sent]


def test_a_stream_may_end_with_an_empty_response(edge):
    sent = with_parameters(spoken("stream", 3, id="i"), triton_enable_empty_final_response=True)
    *answers, last = edge.ModelStreamInfer(iter([sent]), timeout=DEADLINE_S)
    flags = [each.infer_response.parameters["triton_final_response"].bool_param for each in answers]
    assert (flags, last.infer_response.parameters["triton_final_response"].bool_param) == ([False] * 3, True)


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack("!I", len(content))[1:] + struct.pack("!BBI", kind, flags, stream) + content


def head(**fields: str) -> bytes:
    """A block of fields that are not compressed."""
    names = [(name.replace("_", "-").replace("--", ":").encode(), value.encode()) for name, value in fields.items()]
    return b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in names)


def test_typed_contents_are_bounded_and_the_message_says_what_to_send(edge):
    made = request("echo_BOOL", ("x", "BOOL", [1, 17 << 20], b""))
    del made.raw_input_contents[:]
    made.inputs[0].contents.bool_contents.extend([True] * (17 << 20))
    with pytest.raises(grpc.RpcError, match="raw_input_contents") as caught:
        edge.ModelInfer(made, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_server_itself_ends_a_call_at_its_deadline(free_config):
    """The client of this test does not: those of grpcio end calls by themselves."""
    may_answer = threading.Event()

    def slow(requests: list[Any]) -> list[Any]:
        assert may_answer.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    fields = head(
        __method="POST", __scheme="http", __path="/inference.GRPCInferenceService/ModelInfer", __authority="a",
        content_type="application/grpc", te="trailers", grpc_timeout="200m",
    )  # fmt: skip
    sent = floats(1, model="m").SerializeToString()
    message = b"\0" + struct.pack("!I", len(sent)) + sent
    config = replace(free_config, grpc_frontend="edge")
    with serving(config, slow, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        triton.run()
        with closing(socket.create_connection((LOCALHOST, config.grpc_port), timeout=DEADLINE_S)) as connection:
            connection.sendall(PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, fields) + frame(0, 1, 1, message))
            received = connection.makefile("rb")
            kind = flags = stream = 0
            while (kind, flags & 1, stream) != (1, 1, 1):  # the trailers
                length, kind, flags, stream = struct.unpack("!IBBI", b"\0" + received.read(9))
                received.read(length)
        assert not may_answer.is_set()
        may_answer.set()
        with grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}") as channel:
            assert Stub(channel).ModelInfer(floats(1, model="m"), timeout=DEADLINE_S).raw_output_contents


@pytest.mark.parametrize("seconds", [1e7, 1e9])  # those of grpcio itself end there
def test_a_deadline_in_the_far_future_is_none(edge, seconds):
    assert edge.ModelInfer(floats(1), timeout=seconds).raw_output_contents


def test_the_last_request_of_a_stream_is_answered_after_many_small_ones(edge):
    """More than are in flight at once: the client has no window meanwhile, and its stream is not one that stalls."""
    count = 3000
    answers = edge.ModelStreamInfer((floats(number, id=str(number)) for number in range(count)), timeout=DEADLINE_S)
    assert [each.infer_response.id for each in answers] == [str(number) for number in range(count)]


def test_streams_that_clients_stop_leave_a_server_that_answers(edge):
    for number in range(STOPPED_STREAMS):
        call = edge.ModelStreamInfer(iter([spoken("stream", 50), floats(1, model="nothing")]))
        if number % 3:
            next(call)
        call.cancel()
    assert [*edge.ModelStreamInfer(iter([spoken("stream", 2)]), timeout=DEADLINE_S)]


def test_damaged_connections_leave_a_server_that_answers(configs, edge):
    chance = random.Random(1)
    frame = b"\0\0\x04\x01\x04\0\0\0\x01\x83\x86\x84\x41"
    for _ in range(HOSTILE_CONNECTIONS):
        with closing(socket.create_connection((LOCALHOST, configs["edge"].grpc_port))) as connection:
            sent = bytearray(PREFACE + b"\0\0\0\x04\0\0\0\0\0" + frame * chance.randrange(20))
            for _ in range(chance.randrange(4)):
                sent[chance.randrange(len(sent))] = chance.randrange(256)
            connection.sendall(sent[: chance.randrange(len(sent) + 1)])
    assert edge.ServerLive(pb.ServerLiveRequest()).live


def test_restricted_methods_need_their_metadata(free_config):
    config = replace(free_config, grpc_frontend="edge")
    security = TritonSecurityConfig(access_token="secret", restricted_endpoints=["inference"])
    with serving(config, security_config=security) as triton:
        triton.run()
        with grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}") as channel:
            stub, sent = Stub(channel), floats(1, model="m")
            assert outcome(stub.ModelInfer, sent) is grpc.StatusCode.UNAVAILABLE
            wrong = [("triton-grpc-protocol-triton-access-token", "other")]
            assert outcome(stub.ModelInfer, sent, metadata=wrong) is grpc.StatusCode.UNAVAILABLE
            right = [("triton-grpc-protocol-triton-access-token", "secret")]
            assert stub.ModelInfer(sent, metadata=right).raw_output_contents
            assert stub.ServerLive(pb.ServerLiveRequest()).live


def test_a_server_may_listen_on_a_unix_socket(free_config, tmp_path):
    config = replace(free_config, grpc_frontend="edge", grpc_address=f"unix:{tmp_path}/s")
    with serving(config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        triton.run()
        with grpc.insecure_channel(f"unix:{tmp_path}/s") as channel:
            assert Stub(channel).ModelInfer(floats(2, model="m")).raw_output_contents


def test_a_stop_answers_what_is_in_flight(free_config):
    is_called, may_answer = threading.Event(), threading.Event()

    def slow(requests: list[Any]) -> list[Any]:
        is_called.set()
        assert may_answer.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    config = replace(free_config, grpc_frontend="edge")
    with serving(config, slow, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        triton.run()
        with grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}") as channel:
            sent = floats(1, model="m")
            calls = [Stub(channel).ModelInfer.future(sent, timeout=DEADLINE_S)]
            assert is_called.wait(DEADLINE_S)
            calls += [Stub(channel).ModelInfer.future(sent, timeout=DEADLINE_S) for _ in range(64)]
            threading.Timer(0.3, may_answer.set).start()
            triton.stop()
            codes = [call.code() for call in calls]
    assert codes[0] is grpc.StatusCode.OK
    assert {*codes} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


def test_a_model_client_is_served(configs, edge):
    with ModelClient(f"grpc://{LOCALHOST}:{configs['edge'].grpc_port}", "echo_FP32") as client:
        assert client.infer_batch(np.ones((2, 3), np.float32))["x"].tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize(
    "options",
    [{"allow_http": False}, {"http_frontend": "triton"}, {"trace_config": ["level=TIMESTAMPS"]}],
)
def test_what_the_edge_lacks_is_refused(free_config, options):
    with pytest.raises(PyTritonValidationError, match="grpc_frontend='edge' cannot be used"):
        Triton(config=replace(free_config, grpc_frontend="edge", **options))
