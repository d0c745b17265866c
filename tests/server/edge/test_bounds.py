"""What requests may take of the edge: memory, in all and for each address, time, and descriptors."""

from __future__ import annotations

import gzip
import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.config import TritonConfig
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.edge.cases import Tensor as Sent
from tests.server.edge.cases import infer, numbers
from tests.server.edge.models import bind_models
from tests.server.edge.wire import LENGTH, Answer, Client, Request
from tests.server.own_server import server_of
from tests.server.processes import wait_for

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

MIB = 2**20
BUDGET, MOST_JSON = 96 * MIB, 8 * MIB
TIMEOUT_S = 2
GOOD = infer("echo_FP32", numbers())
LARGE = infer("echo_FP32", numbers(np.ones((1, 2 * MIB), np.float32), binary=True))
METRICS = Request("GET", "/metrics")


class Gate:
    """A model that sends a value, and another one when it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def values(self, requests: Any) -> Iterator[Any]:
        yield [{"y": requests[0]["x"]}]
        self.opened.wait(60)
        yield [{"y": requests[0]["x"]}]


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@contextmanager
def serving(folder: Path, gate: Gate, **options: int) -> Iterator[TritonConfig]:
    """Configuration of a server with little memory for requests."""
    options = {"http_max_json_bytes": MOST_JSON, "http_max_buffered_bytes": BUDGET, **options}
    security = TritonSecurityConfig(restricted_endpoints=["logging"])
    with (
        local_config(http_frontend="native", http_metrics=True, **options) as config,
        Triton(config=config, security_config=security) as triton,
    ):
        bind_models(triton, folder)
        number = [Tensor((-1,), np.float32, "x")]
        decoupled = ModelConfig(max_batch_size=1, decoupled=True, batcher=None)
        triton.bind("gate", gate.values, number, [Tensor((-1,), np.float32, "y")], config=decoupled)
        triton.run()
        yield config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[TritonConfig]:
    with serving(tmp_path_factory.mktemp("models"), gate) as config:
        yield config


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[TritonConfig]:
    """Of a server with a short time-out."""
    with serving(tmp_path_factory.mktemp("models"), gate, http_timeout_s=TIMEOUT_S) as config:
        yield config


@pytest.fixture(autouse=True)
def survivor(config: TritonConfig) -> Iterator[None]:
    """The same process serves after each test, and has given all memory back."""
    pid = server_of(config)
    yield
    wait_for(lambda: sample(config, "buffered_bytes") < MIB, "all memory to be given back")
    assert server_of(config) == pid


@contextmanager
def client_of(config: TritonConfig, address: str = "127.0.0.1", received: int = 0) -> Iterator[Client]:
    """A client of one of this machine's addresses; ``received`` bytes of its kernel's buffer."""
    with closing(socket.socket()) as connection:
        if received:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        connection.settimeout(60)
        connection.bind((address, 0))
        connection.connect(("127.0.0.1", int(config.http_port or 0)))
        client = object.__new__(Client)
        client.socket = connection
        yield client


def sample(config: TritonConfig, name: str) -> int:
    with client_of(config, "127.0.0.9") as client:
        page = client.ask(METRICS).data.decode()
    found = re.search(rf"^pytriton_http_{name} (\d+)$", page, re.MULTILINE)
    assert found, page
    return int(found[1])


def head_of(request: Request) -> bytes:
    data = request.encoded()
    return data[: data.index(b"\r\n\r\n") + 4]


@contextmanager
def unfinished(config: TritonConfig, address: str, count: int) -> Iterator[None]:
    """Clients of an address that have sent most of a large request."""
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(client_of(config, address))
            with suppress(ConnectionError):  # it is refused
                client.send(LARGE.encoded()[:-1])
        yield


def test_clients_of_an_address_have_their_share_of_the_memory_and_others_the_rest(config):
    most = BUDGET // 2 // len(LARGE.body)
    with unfinished(config, "127.0.0.1", most):
        wait_for(lambda: sample(config, "buffered_bytes") > 0.8 * BUDGET / 2, "the requests to come")
        with client_of(config, "127.0.0.1") as client:
            with suppress(ConnectionError):
                client.send(LARGE.encoded())
            answer = client.answer()
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert "of this address" in answer.error
        with client_of(config, "127.0.0.1") as client:
            assert client.ask(GOOD).status == 200  # small ones are served
        with client_of(config, "127.0.0.2") as client:
            assert client.ask(LARGE).status == 200
        with unfinished(config, "127.0.0.2", most), client_of(config, "127.0.0.3") as client:
            wait_for(lambda: sample(config, "buffered_bytes") > 0.8 * BUDGET, "the requests to come")
            with suppress(ConnectionError):
                client.send(LARGE.encoded() + LARGE.encoded())
            answer = client.answer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_answers_that_nobody_reads_are_of_the_memory_of_their_address(config):
    request = infer(
        "echo_FP32", numbers(np.ones((1, 2 * MIB), np.float32), binary=True), parameters={"binary_data_output": True}
    )
    with ExitStack() as stack:
        statuses: list[int] = []
        while 429 not in statuses:
            assert len(statuses) < 30
            client = stack.enter_context(client_of(config, received=4096))
            with suppress(ConnectionError):
                client.send(request.encoded())
            statuses.append(int(client.socket.recv(16, socket.MSG_PEEK).split()[1]))
        with client_of(config, "127.0.0.2") as client:
            assert client.ask(request).data == LARGE.body[int(LARGE.headers[LENGTH]) :]


def zeros(count: int) -> bytes:
    """JSON of so many numbers."""
    head = infer("echo_FP32", numbers(np.zeros((1, 1), np.float32))).body
    return head.replace(b"[1, 1]", b"[1, %d]" % count).replace(b"[[0.0]]", b"[" + b"0," * (count - 1) + b"0]")


def compressed(body: bytes) -> Request:
    return Request("POST", GOOD.target, gzip.compress(body), {"Content-Encoding": "gzip"})


def test_json_has_a_limit_of_its_own_whether_it_is_compressed_or_not(config):
    text = zeros(MOST_JSON // 2 + 1)
    assert len(text) > MOST_JSON
    for request in (Request("POST", GOOD.target, text), compressed(text)):
        with client_of(config) as client:
            assert client.ask(request).status == 413
    with client_of(config) as client:
        assert client.ask(infer("echo_FP32", numbers(np.ones((1, 3 * MIB), np.float32), binary=True))).status == 200


def test_json_whose_reading_takes_more_than_the_share_is_refused_and_ends_nothing(config):
    with client_of(config) as client:
        answer = client.ask(compressed(zeros(3 * MIB)))  # 8 bytes and more for each 2 of them
        assert answer.status == 429, answer
        assert client.ask(compressed(zeros(MIB))).status == 200


def test_binary_data_have_the_bytes_of_the_model(config):
    array = np.ones((8, 2), np.int32)
    request = infer("pair", *(Sent(name, "INT32", array, binary=True) for name in ("a", "b")))
    with client_of(config) as client:
        assert client.ask(request).status == 200
    with client_of(config) as client:
        head = head_of(Request("POST", request.target, b"x", request.headers))
        client.send(head.replace(b"Content-Length: 1\r", b"Content-Length: 1000000\r"))
        assert client.answer().status == 413


def test_a_body_that_needs_the_token_is_refused_before_it_comes(config):
    with client_of(config) as client:
        client.send(b"POST /v2/logging HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
        assert client.answer().status == 403


def test_small_requests_are_answered_while_others_are_decompressed_and_read(config):
    """Others' memory is not enough for all of them at once, so each is repeated until it is answered."""
    large, small = compressed(zeros(MIB)), Request("POST", GOOD.target, zeros(200_000))
    ended, answered, others = threading.Event(), list[Answer](), list[Answer]()

    def repeat() -> None:
        while not ended.is_set():
            with client_of(config) as client:
                others.append(client.ask(large))

    threads = [threading.Thread(target=repeat) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        with client_of(config, "127.0.0.2") as client:
            while len(answered) < 20:
                answered.append(client.ask(small))
            read = sum(other.status == 200 for other in others)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert {answer.status for answer in answered} == {200}
    assert read <= 4 * len(answered)  # without turns, each waits for all eight


def test_a_body_that_stops_is_given_up_however_much_has_come(hasty):
    with client_of(hasty) as client:
        client.send(LARGE.encoded()[: 4 * MIB])
        assert client.answer().status == 408
        assert client.is_closed()


def test_a_reader_that_takes_too_little_is_cut_off(hasty):
    request = infer(
        "echo_FP32", numbers(np.ones((1, 2 * MIB), np.float32), binary=True), parameters={"binary_data_output": True}
    )
    before = sample(hasty, "connections_timed_out_total")
    with client_of(hasty, received=4096) as client:
        client.send(request.encoded())
        deadline = time.monotonic() + 60
        while sample(hasty, "connections_timed_out_total") == before:
            assert time.monotonic() < deadline
            client.socket.recv(1)
            time.sleep(0.1)
        assert is_reset(client)


def is_reset(client: Client) -> bool:
    """Whether what was not read is lost with the connection."""
    try:
        while client.socket.recv(MIB):
            pass
    except ConnectionResetError:
        return True
    return False


def test_a_stream_whose_model_is_silent_stays(hasty, gate):
    with client_of(hasty) as client, client_of(hasty) as stalled:
        client.send(Request("POST", "/v2/models/gate/generate_stream", b'{"x": 1}').encoded())
        stalled.send(LARGE.encoded()[:MIB])
        assert stalled.answer().status == 408  # the time-out has passed
        stalled.socket.close()
        with client_of(hasty) as again:
            again.send(LARGE.encoded()[:MIB])
            assert again.answer().status == 408
        gate.opened.set()
        assert client.answer("POST").data.count(b"data:") == 2


@pytest.fixture
def few_descriptors(config: TritonConfig) -> Iterator[int]:
    """The server may open so many files: 100 more than it has."""
    pid = server_of(config)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    limit = max(int(name.name) for name in Path(f"/proc/{pid}/fd").iterdir()) + 100
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_new_clients_are_served_while_others_hold_all_descriptors(config, few_descriptors):
    with ExitStack() as stack:
        for number in range(2 * few_descriptors):
            idle = stack.enter_context(connected_quietly(config))
            if idle and number % 2:
                with suppress(ConnectionError):
                    idle.send(GOOD.encoded()[:20])
        for _ in range(50):
            client = stack.enter_context(client_of(config))
            assert client.ask(Request("GET", "/v2/health/ready")).status == 200
            assert client.ask(GOOD).status == 200
    assert sample(config, "connections_given_way_total") > 50


@contextmanager
def connected_quietly(config: TritonConfig) -> Iterator[Client | None]:
    try:
        with client_of(config) as client:
            yield client
    except ConnectionError:
        yield None


def test_the_longest_idle_connection_gives_way_first(config, few_descriptors):
    with ExitStack() as stack:
        first = stack.enter_context(client_of(config))
        assert first.ask(GOOD).status == 200
        first.socket.settimeout(0)
        wait_for(lambda: is_given_way(first, stack, config), "the first connection to be closed")
        last = stack.enter_context(client_of(config))
        assert last.ask(GOOD).status == 200


def is_given_way(first: Client, stack: ExitStack, config: TritonConfig) -> bool:
    """Open another connection, and look whether the first one is closed."""
    assert stack.enter_context(client_of(config)).ask(GOOD).status == 200
    with suppress(BlockingIOError):
        return first.socket.recv(1) == b""
    return False
