"""Clients that go at once, stop their streams, or call while the server stops: nothing of them is kept, or lost."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
from stopped_streams import CLIENTS, STREAM, stop_streams
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.config import TritonConfig
from pytriton.llm import ChatModel, ChatRequest
from pytriton.model_config import ModelConfig, Tensor
from pytriton.rest import RestConfig
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.cases import infer, numbers
from tests.server.edge.http2 import END_HEADERS, HEADERS, Http2Client, call, frame, head
from tests.server.edge.test_grpc import floats
from tests.server.edge.wire import Client, Request, connected
from tests.server.gated import Gated
from tests.server.own_server import TENSORS, address, double, server_of, serving
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

COUNT, ROUNDS = 1000, 3
STREAMS = 1000  # over gRPC, that are stopped
CONNECTIONS, CALLS = 100, 64  # over gRPC, of each connection
DEADLINES = 4000
ERROR_BYTES = 4000
STOPS, CALLERS = 3, 32
MIB = 2**20
BATCHED = ModelConfig(max_batch_size=8)
DECOUPLED = ModelConfig(max_batch_size=1, decoupled=True, batcher=None)
JSON = {"Content-Type": "application/json"}
REQUESTS = {
    "numbers as JSON": infer("gated", numbers()),
    "binary numbers": infer("gated", numbers(np.ones((1, 4096), np.float32), binary=True)),
    "generate": Request("POST", "/v2/models/gated/generate", b'{"x":[1,2]}'),
    "streams": Request("POST", "/v2/models/endless/generate_stream", b'{"x":[1]}'),
    "predict": Request("POST", "/predict/shout", b'{"text":"a"}', JSON),
    "chats": Request(
        "POST", "/v1/chat/completions", b'{"model":"chat","messages":[{"role":"user","content":"a"}]}', JSON
    ),
}


class Models:
    """Callables that a test holds up."""

    def __init__(self) -> None:
        self.gated, self.gate = Gated(), threading.Event()
        self.streams = 0

    def endless(self, requests: list[Any]) -> Iterator[list[Any]]:
        self.streams += 1
        try:
            yield from repeat([{"y": requests[0]["x"]}])
        finally:
            self.streams -= 1

    def doubles(self, requests: list[Any]) -> Iterator[list[Any]]:
        for _ in range(requests[0]["COUNT"].item()):
            yield [{"OUTPUT": 2 * requests[0]["INPUT"]}]

    def shout(self, text: str) -> str:
        self.gate.wait()
        return text.upper()

    def chat(self, request: ChatRequest) -> str:
        self.gate.wait()
        return "a"

    def failing(self, requests: list[Any]) -> list[Any]:
        raise ValueError("e" * ERROR_BYTES)

    def open(self) -> None:
        self.gated.gate.open()
        self.gate.set()

    def close(self) -> None:
        self.gated.reset()
        self.gate.clear()


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


@pytest.fixture(scope="module")
def config(models: Models) -> Iterator[TritonConfig]:
    with (
        reserved_ports(1) as (port,),
        local_config(http_frontend="native", grpc_frontend="edge", http_metrics=True) as config,
        Triton(
            config=config,
            security_config=TritonSecurityConfig(restricted_endpoints=[]),
            rest=RestConfig(port=port, address=LOCALHOST),
        ) as triton,
    ):
        triton.bind("gated", models.gated, *TENSORS, config=BATCHED)
        triton.bind("failing", models.failing, *TENSORS, config=BATCHED)
        triton.bind("other", double, *TENSORS, config=BATCHED)
        number = (Tensor((-1,), np.float32, "x"),), (Tensor((-1,), np.float32, "y"),)
        triton.bind("endless", models.endless, *number, config=DECOUPLED)
        inputs = Tensor((-1,), np.float32, "INPUT"), Tensor((1,), np.int32, "COUNT")
        triton.bind(STREAM, models.doubles, inputs, (Tensor((-1,), np.float32, "OUTPUT"),), config=DECOUPLED)
        triton.bind("shout", models.shout)
        triton.bind("chat", ChatModel(models.chat))
        triton.run()
        yield config


def sample(client: Client, name: str) -> int:
    """Sum of the samples of a metric."""
    page = client.ask(Request("GET", "/metrics")).data.decode()
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    assert found, page
    return sum(int(float(each)) for each in found)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("name", REQUESTS)
def test_clients_that_all_go_at_once_leave_nothing_and_others_are_answered(config, models, name):
    pid, resident = server_of(config), []
    with connected(config) as other:
        for _ in range(ROUNDS):
            models.close()
            clients = [Client((LOCALHOST, int(config.http_port or 0))) for _ in range(COUNT)]
            for client in clients:
                client.send(REQUESTS[name].encoded())
            wait_for(lambda: sample(other, "pytriton_http_requests_in_flight") > COUNT, "all requests")
            for client in clients:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            assert other.ask(infer("other", numbers())).status == 200
            models.open()
            wait_for(lambda: sample(other, "pytriton_http_requests_in_flight") == 1, "the end of all requests")
            wait_for(lambda: sample(other, "nv_inference_pending_request_count") == 0, "the end of the queues")
            wait_for(lambda: models.streams == 0, "the end of all streams")
            wait_for(lambda: sample(other, "pytriton_http_buffered_bytes") < MIB, "all memory to be given back")
            if name != "streams":
                assert other.ask(REQUESTS[name]).status == 200
            resident.append(resident_bytes(pid))
    assert resident[-1] < resident[0] + 16 * MIB
    assert server_of(config) == pid


def wait_all_given_back(client: Client) -> None:
    """Until the server has nothing of any request but this one."""
    wait_for(lambda: sample(client, "pytriton_http_requests_in_flight") == 1, "the end of all requests")
    wait_for(lambda: sample(client, "nv_inference_pending_request_count") == 0, "the end of the queues")
    wait_for(lambda: sample(client, "pytriton_http_buffered_bytes") < MIB, "all memory to be given back")


@pytest.mark.parametrize("at_once", [16, 64])
@pytest.mark.parametrize("client", CLIENTS)
def test_streams_that_clients_stop_are_never_silent_before(config, client, at_once):
    pid = server_of(config)
    counts = stop_streams(client, int(config.grpc_port or 0), STREAMS, at_once, seed=1)
    assert counts["streams"] == STREAMS
    assert not [name for name in counts if name.startswith(("silent", "wrong"))], counts
    with connected(config) as other:
        wait_all_given_back(other)
    assert server_of(config) == pid


@pytest.mark.parametrize("resets", [False, True])
def test_connections_that_close_with_calls_in_flight_leave_nothing(config, models, resets):
    pid, resident, port = server_of(config), [], int(config.grpc_port or 0)
    content = floats(1, model="gated").SerializeToString()
    calls = b"".join(call(stream, content) for stream in range(1, 2 * CALLS, 2))
    with connected(config) as other:
        for _ in range(ROUNDS):
            models.close()
            clients = [Http2Client.at(port) for _ in range(CONNECTIONS)]
            for client in clients:
                assert client.send(calls)
            wait_for(lambda: sample(other, "pytriton_http_requests_in_flight") > CONNECTIONS * CALLS, "all requests")
            for client in clients:
                if resets:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.socket.close()
            with Http2Client.at(port) as client:
                client.send(call(1, floats(1, model="other").SerializeToString()))
                assert client.ending(1) == "status 0"
            models.open()
            wait_all_given_back(other)
            resident.append(resident_bytes(pid))
    assert resident[-1] < resident[0] + 16 * MIB
    assert server_of(config) == pid


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_errors_of_a_model_leave_nothing(config, protocol):
    pid, resident = server_of(config), []
    with ModelClient(address(config, protocol), "failing") as client:
        for _ in range(ROUNDS):
            for _ in range(COUNT):
                with pytest.raises(PyTritonClientInferenceServerError):
                    client.infer_batch(np.ones((1, 2), np.float32))
            resident.append(resident_bytes(pid))
    assert resident[-1] < resident[-2] + COUNT * ERROR_BYTES / 2


def test_deadlines_of_clients_that_have_gone_take_no_memory(config):
    """The server forgets them with the connection."""
    deadline = head("ModelStreamInfer", (b"grpc-timeout", b"99999999H"))
    sent = frame(HEADERS, END_HEADERS, 1, deadline) + call(3, floats(1, model="other").SerializeToString())
    resident = []
    for _ in range(ROUNDS):
        for _ in range(DEADLINES):
            with Http2Client.at(int(config.grpc_port or 0)) as client:
                client.send(sent)
                assert client.ending(3) == "status 0"
        resident.append(resident_bytes(server_of(config)))
    assert resident[-1] < resident[-2] + DEADLINES * 512


class Callers:
    """Clients that go on to call ``m`` over gRPC, each over a connection of its own.

    Attributes:
        called: Values that the model was called with.
        outcomes: Of each call, and its value.
    """

    def __init__(self, port: int) -> None:
        self.called: SimpleQueue[float] = SimpleQueue()
        self.outcomes: SimpleQueue[tuple[grpc.StatusCode, float]] = SimpleQueue()
        self._port, self._ended = port, threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(number,)) for number in range(CALLERS)]

    def infer(self, requests: list[Any]) -> list[Any]:
        for request in requests:
            self.called.put(request["x"].item())
        return double(requests)

    def _go_on(self, number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"{LOCALHOST}:{self._port}", options) as channel:
            stub, value = GRPCInferenceServiceStub(channel), float(number << 16)
            while not self._ended.is_set():
                value += 1
                try:
                    answer = stub.ModelInfer(floats(value, model="m"), timeout=DEADLINE_S)
                    assert np.frombuffer(answer.raw_output_contents[0], np.float32) == 2 * value
                    self.outcomes.put((grpc.StatusCode.OK, value))
                except grpc.RpcError as error:
                    self.outcomes.put((error.code(), value))
                    self._ended.wait(0.01)

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_stops_lose_no_call_of_those_that_clients_go_on_to_make(free_config):
    """Each call ends with OK or UNAVAILABLE, and what the model was called with, a client has got."""
    config = replace(free_config, grpc_frontend="edge")
    for _ in range(STOPS):
        callers = Callers(int(config.grpc_port or 0))
        security = TritonSecurityConfig(restricted_endpoints=[])
        with serving(config, callers.infer, security_config=security) as triton:
            triton.run()
            with callers:
                wait_for(lambda each=callers: each.called.qsize() > 4 * CALLERS, "calls of all clients")
                triton.stop()
        found = [callers.outcomes.get() for _ in range(callers.outcomes.qsize())]
        assert {code for code, _ in found} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        answered = {value for code, value in found if code is grpc.StatusCode.OK}
        assert {callers.called.get() for _ in range(callers.called.qsize())} == answered
