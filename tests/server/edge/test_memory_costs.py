"""The server's memory per byte of a request, for each route, encoding and protocol, and with many hostile clients."""

from __future__ import annotations

import gzip
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.client.auth import create_auth_headers
from pytriton.config import TritonConfig
from pytriton.rest import RestConfig
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.cases import infer, numbers
from tests.server.edge.models import bind_models
from tests.server.edge.wire import Request, connected
from tests.server.own_server import server_of
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

MIB = 2**20
SIZE = 6 * MIB  # of a body's content
TOKEN = "the-token-of-these-tests"
OPERATOR = create_auth_headers(TOKEN, "http")
# What the server allocates whatever is sent: buffers that its allocator keeps, stacks.
SLACK = 24 * MIB
BUDGET = 512 * MIB


def total(values: list[float]) -> float:
    return sum(values)


@dataclass(frozen=True)
class Case:
    """A request, and the most memory that it may take for each byte of its content."""

    request: Request
    factor: float


def repeated(head: bytes, unit: bytes, last: bytes, size: int = SIZE) -> bytes:
    return head + unit * ((size - len(head) - len(last)) // len(unit)) + last


def tensor(dtype: str, unit: bytes, last: bytes) -> bytes:
    """An inference with a list of data."""
    count = (SIZE - 100) // len(unit)
    head = b'{"inputs":[{"name":"x","datatype":"%b","shape":[1,%d],"data":[' % (dtype.encode(), count + 1)
    return head + unit * count + last + b"]}]}"


def post(target: str, body: bytes, headers: dict[str, str] | None = None) -> Request:
    return Request("POST", f"/{target}", body, headers or {})


ECHO = "v2/models/echo_{}/infer"
BINARY = infer("echo_FP32", numbers(np.ones((1, SIZE // 4), np.float32), binary=True))
CASES = {
    "infer with numbers": Case(post(ECHO.format("FP64"), tensor("FP64", b"0,", b"0")), 24),
    "infer with texts": Case(post(ECHO.format("BYTES"), tensor("BYTES", b'"",', b'""')), 14),
    "infer with lists that nobody knows": Case(post(ECHO.format("FP32"), repeated(b'{"z":[', b"[],", b"[]]}")), 10),
    "infer that is no JSON": Case(post(ECHO.format("FP32"), b"{" * SIZE), 10),
    "infer with binary data": Case(Request("POST", BINARY.target, BINARY.body, BINARY.headers), 4),
    "generate with numbers": Case(post("v2/models/echo_FP64/generate", repeated(b'{"x":[', b"0,", b"0]}")), 24),
    "generate with members": Case(
        post("v2/models/echo_FP64/generate", repeated(b'{"x":1,"z":"', b"z", b'"}')), 6
    ),
    "predict with numbers": Case(post("predict/total", repeated(b'{"values":[', b"0,", b"0]}")), 24),
    "predict that is no JSON": Case(post("predict/total", b"[" * SIZE), 10),
    "an index": Case(post("v2/repository/index", repeated(b'{"ready":[', b"0,", b"0]}"), OPERATOR), 10),
    "a load": Case(
        post("v2/repository/models/x/load", repeated(b'{"parameters":{"config":"', b"z", b'"}}'), OPERATOR), 8
    ),
    "an index without the token": Case(post("v2/repository/index", b"[" * SIZE), 1),
    "metrics": Case(Request("GET", "/metrics", b"z" * SIZE), 2),
    "an unknown path": Case(post("v3", b"z" * SIZE), 2),
}  # fmt: skip
ENCODINGS: dict[str, Callable[[Request], Request]] = {
    "identity": lambda request: request,
    "chunked": lambda request: Request(
        request.method, request.target, request.body, request.headers, chunks=[2**16] * (len(request.body) // 2**16)
    ),
    "gzip": lambda request: encoded(request, "gzip", gzip.compress(request.body, 6)),
    "deflate": lambda request: encoded(request, "deflate", zlib.compress(request.body, 6)),
}


def encoded(request: Request, name: str, body: bytes) -> Request:
    return Request(request.method, request.target, body, {**request.headers, "Content-Encoding": name})


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    options = {"http_frontend": "native", "http_max_buffered_bytes": BUDGET, "http_metrics": True}
    with (
        reserved_ports(1) as (port,),
        local_config(**options) as config,
        Triton(
            config=config,
            security_config=TritonSecurityConfig(TOKEN),
            rest=RestConfig(port=port, address=LOCALHOST),
        ) as triton,
    ):
        bind_models(triton, tmp_path_factory.mktemp("models"))
        triton.bind(total)
        triton.run()
        yield config


def status_bytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


def begin_peak(pid: int) -> int:
    """Have the kernel begin the largest memory anew; the memory now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status_bytes(pid, "VmRSS")


def ask(config: TritonConfig, request: Request) -> int:
    """The status of the answer; 0 without one."""
    with connected(config) as client:
        with suppress(ConnectionError):  # it is refused before all of it has come
            client.send(request.encoded())
        with suppress(ConnectionError, HTTPException):
            return client.answer(request.method).status
    return 0


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", CASES)
def test_a_request_takes_no_more_memory_than_a_multiple_of_its_content(config, name, encoding):
    pid = server_of(config)
    case = CASES[name]
    before = begin_peak(pid)
    status = ask(config, ENCODINGS[encoding](case.request))
    grown = status_bytes(pid, "VmHWM") - before
    assert server_of(config) == pid
    assert grown < case.factor * len(case.request.body) + SLACK, status


def call(dtype: str, count: int, raw: bytes = b"", **contents: list[object]) -> service_pb2.ModelInferRequest:
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype=dtype, shape=[1, count])
    for name, values in contents.items():
        getattr(tensor.contents, name).extend(values)
    return service_pb2.ModelInferRequest(
        model_name=f"echo_{dtype}", inputs=[tensor], raw_input_contents=[raw] if raw else []
    )


CALLS = {
    "raw": (lambda: call("FP32", SIZE // 4, bytes(SIZE)), 4, True),
    "numbers of a byte each": (lambda: call("INT64", SIZE, int64_contents=[0] * SIZE), 40, True),
    "numbers of four bytes each": (lambda: call("FP32", SIZE // 4, fp32_contents=[0.0] * (SIZE // 4)), 6, True),
    "texts": (lambda: call("BYTES", SIZE // 2, bytes_contents=[b""] * (SIZE // 2)), 14, True),
    "contents that do not fit": (lambda: call("FP32", 1, fp64_contents=[0.0] * (SIZE // 8)), 4, False),
    "tensors": (lambda: service_pb2.ModelInferRequest(model_name="echo_FP32", inputs=[{}] * (SIZE // 2)), 4, False),
}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_no_more_memory_than_a_multiple_of_its_content(config, name, compression):
    pid = server_of(config)
    make, factor, is_accepted = CALLS[name]
    message = make()
    options = [("grpc.enable_http_proxy", 0), *((f"grpc.max_{way}_message_length", -1) for way in ("send", "receive"))]
    before = begin_peak(pid)
    with grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}", options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        error = stub.ModelInfer.future(message, compression=compression, timeout=DEADLINE_S).exception()
    grown = status_bytes(pid, "VmHWM") - before
    assert server_of(config) == pid
    assert (error is None) == is_accepted, error
    assert grown < factor * message.ByteSize() + SLACK


def zeros(count: int) -> bytes:
    """JSON of so many numbers of 64 bits, compressed."""
    head = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,%d],"data":[' % count
    return gzip.compress(head + b"0," * (count - 1) + b"0]}]}", 1)


class Hostile(threading.Thread):
    """Clients of an address that send a request again and again, without reading the answers."""

    def __init__(self, config: TritonConfig, number: int, data: bytes, ended: threading.Event) -> None:
        super().__init__()
        self._address, self._data, self._ended = f"127.0.1.{number + 1}", data, ended
        self._port = int(config.http_port or 0)

    def run(self) -> None:
        clients: list[socket.socket] = []
        while not self._ended.is_set():
            with suppress(OSError):
                client = socket.socket()
                clients.append(client)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(5)
                client.bind((self._address, 0))
                client.connect((LOCALHOST, self._port))
                client.sendall(self._data)
                client.recv(1)
            if len(clients) > 8:
                clients.pop(0).close()
        for client in clients:
            client.close()


def test_hostile_clients_take_no_more_memory_than_they_may_and_others_are_served(config):
    """With half of 1 GiB for requests, the server stays below 1.3 GiB."""
    pid = server_of(config)
    gzipped = {"Content-Encoding": "gzip"}
    binary = infer(
        "echo_FP32", numbers(np.ones((1, 8 * MIB), np.float32), binary=True), parameters={"binary_data_output": True}
    )
    kinds = [
        post(ECHO.format("FP64"), zeros(32 * MIB), gzipped).encoded(),
        post(ECHO.format("FP64"), zeros(4 * MIB), gzipped).encoded(),
        post(ECHO.format("FP64"), zeros(512 * MIB // 8), gzipped).encoded(),
        post("v2/models/echo_FP64/generate", zeros(MIB), gzipped).encoded(),
        binary.encoded(),
        binary.encoded()[:-1],
        post("predict/total", zeros(8 * MIB), gzipped).encoded(),
        post("v3", b"", {"Content-Length": "100"}).encoded()[:-2],
    ]
    before = begin_peak(pid)
    ended = threading.Event()
    threads = [Hostile(config, number, kinds[number % len(kinds)], ended) for number in range(2 * len(kinds))]
    for thread in threads:
        thread.start()
    try:
        small = infer("echo_FP32", numbers())
        for _ in range(60):
            with connected(config) as client:
                assert client.ask(Request("GET", "/v2/health/ready")).status == 200
                assert client.ask(small).status == 200
            ended.wait(0.1)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert server_of(config) == pid
    peak = status_bytes(pid, "VmHWM")
    assert peak < before + 2 * BUDGET + 256 * MIB, (before // MIB, peak // MIB)
    wait_for(lambda: ask(config, BINARY) == 200, "memory for a large request")
