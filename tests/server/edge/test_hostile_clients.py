"""Clients that send what no library would: each gets a clear status or a closed connection, and others are served."""

from __future__ import annotations

import gzip
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.config import TritonConfig
from tests.server.edge.cases import Tensor, infer, numbers
from tests.server.edge.models import server_of_models
from tests.server.edge.wire import LENGTH, Answer, Client, Request, connected
from tests.server.own_server import server_of
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

TARGET = "/v2/models/echo_FP32/infer"
GOOD = infer("echo_FP32", numbers()).encoded()
BODY = infer("echo_FP32", numbers()).body
MIB = 2**20
MOST_BYTES = 16 * MIB  # of a body, for the server of these tests
MANY = 100_000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    """Of a server with short time-outs."""
    options = {
        "http_frontend": "native",
        "http_max_body_bytes": MOST_BYTES,
        "http_timeout_s": 3,
    }
    with server_of_models(tmp_path_factory.mktemp("models"), **options) as config:
        yield config


class Others:
    """Another client, which infers all the time.

    Attributes:
        answered: How many requests were.
        failures: Errors of the others.
    """

    def __init__(self, config: TritonConfig) -> None:
        self.answered, self.failures = 0, list[BaseException]()
        self._ended = threading.Event()
        self._url = f"http://{config.http_address}:{config.http_port}"
        self._thread = threading.Thread(target=self._infer)

    def _infer(self) -> None:
        sent = np.ones((1, 2), np.float32)
        with ModelClient(self._url, "echo_FP32") as client:
            while not self._ended.is_set():
                try:
                    assert np.array_equal(client.infer_batch(sent)["x"], sent)
                    self.answered += 1
                except BaseException as error:
                    self.failures.append(error)
                self._ended.wait(0.01)

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_answered(self) -> None:
        """Wait for the answer to a request that is sent from now on."""
        before = self.answered
        wait_for(lambda: self.answered > before + 1 or self.failures, "an answer to another client")
        assert not self.failures


@pytest.fixture(scope="module")
def others(config: TritonConfig) -> Iterator[Others]:
    with Others(config) as others:
        yield others


@pytest.fixture(autouse=True)
def survivor(config: TritonConfig, others: Others) -> Iterator[None]:
    """During and after each test, the same process answers other clients."""
    pid = server_of(config)
    yield
    others.wait_answered()
    assert server_of(config) == pid


@pytest.fixture
def client(config: TritonConfig) -> Iterator[Client]:
    with connected(config) as client:
        yield client


def memory_bytes(config: TritonConfig) -> int:
    """The largest memory that the server has had."""
    status = Path(f"/proc/{server_of(config)}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def refused(client: Client, data: bytes) -> Answer | None:
    """What the server says to bytes that it does not take; None if it closes the connection without a word."""
    with suppress(ConnectionError):  # it need not read to the end
        client.send(data)
    try:
        answer = client.answer()
    except (ConnectionError, HTTPException):
        return None
    assert answer.status >= 400, answer
    return answer


def assert_closed(client: Client) -> None:
    """Nothing that followed can have been taken for another request."""
    assert client.is_closed()


def post(*lines: str | bytes, body: bytes = BODY, target: str = TARGET) -> bytes:
    """A request with these lines in its head."""
    head = [f"POST {target} HTTP/1.1", *lines, "", ""]
    return b"\r\n".join(line if isinstance(line, bytes) else line.encode("latin-1") for line in head) + body


LENGTH_LINE = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = b"0\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMING: dict[str, bytes] = {
    "both lengths": post("Host: x", LENGTH_LINE, CHUNKED, body=SMUGGLED),
    "both lengths in the other order": post("Host: x", CHUNKED, LENGTH_LINE, body=SMUGGLED),
    "two lengths": post("Host: x", LENGTH_LINE, "Content-Length: 3"),
    "the same length twice": post("Host: x", LENGTH_LINE, LENGTH_LINE),
    "a list of lengths": post("Host: x", f"Content-Length: {len(BODY)}, {len(BODY)}"),
    "a length with a plus": post("Host: x", f"Content-Length: +{len(BODY)}"),
    "a negative length": post("Host: x", "Content-Length: -1"),
    "a hexadecimal length": post("Host: x", "Content-Length: 0x10"),
    "a length of text": post("Host: x", "Content-Length: many"),
    "an empty length": post("Host: x", "Content-Length:"),
    "a length of two numbers": post("Host: x", "Content-Length: 1 2"),
    "a length beyond 64 bits": post("Host: x", "Content-Length: 18446744073709551620"),
    "a folded header": post("Host: x", "X-Folded: a\r\n b", LENGTH_LINE),
    "a folded first header": post(" Host: x", LENGTH_LINE),
    "lines that end with LF": GOOD.replace(b"\r\n", b"\n", 3),
    "a head that ends with LF": post("Host: x", LENGTH_LINE).replace(b"\r\n\r\n", b"\n\n"),
    "CR within a header": post("Host: x", "X-Two: a\rb", LENGTH_LINE),
    "CR at the end of a header": post("Host: x", "X-Two: a\r", LENGTH_LINE),
    "NUL within a header": post("Host: x", "X-Two: a\0b", LENGTH_LINE),
    "NUL within a header's name": post("Host: x", "X-T\0wo: a", LENGTH_LINE),
    "a space before the colon": post("Host: x", f"Content-Length : {len(BODY)}"),
    "a tab in a header's name": post("Host: x", f"Content-Length\t: {len(BODY)}"),
    "a header without a colon": post("Host: x", "Content-Length", LENGTH_LINE),
    "a header without a name": post("Host: x", ": value", LENGTH_LINE),
    "no host": post(LENGTH_LINE),
    "two hosts": post("Host: x", "Host: y", LENGTH_LINE),
    "an encoding beside chunked": post("Host: x", "Transfer-Encoding: gzip, chunked", body=SMUGGLED),
    "chunked before another encoding": post("Host: x", "Transfer-Encoding: chunked, identity", body=SMUGGLED),
    "an encoding that looks like chunked": post("Host: x", "Transfer-Encoding: xchunked", body=SMUGGLED),
    "chunked with a vertical tab": post("Host: x", "Transfer-Encoding:\x0bchunked", body=SMUGGLED),
    "chunked twice": post("Host: x", CHUNKED, CHUNKED, body=SMUGGLED),
    "chunked with HTTP/1.0": post("Host: x", CHUNKED, body=SMUGGLED).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a negative chunk": post("Host: x", CHUNKED, body=b"-1\r\n\r\n0\r\n\r\n"),
    "a chunk with a plus": post("Host: x", CHUNKED, body=b"+5\r\n12345\r\n0\r\n\r\n"),
    "a chunk with 0x": post("Host: x", CHUNKED, body=b"0x5\r\n12345\r\n0\r\n\r\n"),
    "a chunk with an underscore": post("Host: x", CHUNKED, body=b"1_0\r\n" + b" " * 16 + b"\r\n0\r\n\r\n"),
    "a chunk beyond 64 bits": post("Host: x", CHUNKED, body=b"fffffffffffffffff\r\n"),
    "a chunk of 2^64 - 1": post("Host: x", CHUNKED, body=b"ffffffffffffffff\r\n"),
    "a chunk without a size": post("Host: x", CHUNKED, body=b"\r\n12345\r\n0\r\n\r\n"),
    "a chunk that is longer than its size": post("Host: x", CHUNKED, body=b"2\r\n12345\r\n0\r\n\r\n"),
    "a chunk whose size ends with LF": post("Host: x", CHUNKED, body=b"5\n12345\r\n0\r\n\r\n"),
    "a chunk that ends with LF": post("Host: x", CHUNKED, body=b"5\r\n12345\n0\r\n\r\n"),
    "a long extension of a chunk": post("Host: x", CHUNKED, body=b"1;" + b"x" * MIB),
    "endless trailers": post("Host: x", CHUNKED, body=b"0\r\n" + b"X-Trailer: y\r\n" * MANY),
    "HTTP/0.9": b"GET /v2/health/live\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    "HTTP/9.9": GOOD.replace(b"HTTP/1.1", b"HTTP/9.9"),
    "another protocol": GOOD.replace(b"HTTP/1.1", b"RTSP/1.0"),
    "a lower-case protocol": GOOD.replace(b"HTTP/1.1", b"http/1.1"),
    "two spaces in the first line": GOOD.replace(b"POST ", b"POST  "),
    "a space in the target": GOOD.replace(b"/infer", b"/in fer"),
    "NUL in the target": GOOD.replace(b"/infer", b"/in\0fer"),
    "bytes beyond ASCII in the target": GOOD.replace(b"/infer", b"/\xff\xfe"),
    "a target without a slash": GOOD.replace(b"POST /v2", b"POST v2"),
    "an unknown method": GOOD.replace(b"POST", b"STEAL"),
    "a method of 64 KiB": b"A" * 65536 + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500),
    "random bytes": np.random.default_rng(7).bytes(4096),
    "NUL bytes": bytes(4096),
    "100,000 headers": post("Host: x", *(f"X-{number}: y" for number in range(MANY)), LENGTH_LINE),
    "1,000 headers": post("Host: x", *(f"X-{number}: y" for number in range(1000)), LENGTH_LINE),
    "a header of 1 MiB": post("Host: x", "X-Long: " + "y" * MIB, LENGTH_LINE),
    "a header's name of 1 MiB": post("Host: x", "X" * MIB + ": y", LENGTH_LINE),
    "a target of 1 MiB": post("Host: x", LENGTH_LINE, target="/v2/" + "x" * MIB),
    "a body of 10 GiB": post("Host: x", f"Content-Length: {10 * 2**30}", body=b""),
    "a body of 2^63 - 1 bytes": post("Host: x", f"Content-Length: {2**63 - 1}", body=b""),
    "a body of 10 GiB that waits for 100": post(
        "Host: x", f"Content-Length: {10 * 2**30}", "Expect: 100-continue", body=b""
    ),
    "a chunk of 10 GiB": post("Host: x", CHUNKED, body=b"%x\r\n" % (10 * 2**30)),
    "an unknown expectation": post("Host: x", LENGTH_LINE, "Expect: the-unexpected"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMING)
def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_closed(client, name):
    refused(client, FRAMING[name])
    assert_closed(client)


TARGETS = [
    "http://localhost/v2/health/live",
    "http://evil.example/v2/repository/index",
    "https://localhost:1/v2",
    "*",
    "//v2/health/live",
    "/v2//health/live",
    "/v2/./health/live",
    "/v2/health/../health/live",
    "/../../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/v2%2fhealth%2flive",
    "/v2/models/..%2f..%2frepository/index",
    "/v2/models/%00/infer",
    "/v2/models/echo_FP32%00/infer",
    "/v2/models/%",
    "/v2/models/%zz/infer",
    "/v2/models//infer",
    "/v2/models/echo_FP32/versions//infer",
    "/v2/models/echo_FP32/versions/-1/infer",
    "/v2/models/echo_FP32/versions/99999999999999999999/infer",
    "/v2/models/" + "m" * 4000 + "/infer",
    "/v2/health/live?" + "q" * 4000,
    "/v2/health/live#fragment",
    "?",
    "/",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_target_has_an_answer(config, method):
    for target in TARGETS:
        with connected(config) as client:
            client.send(Request(method, target).encoded())
            answer = client.answer()
            assert 200 <= answer.status < 500 or answer.status == 501, target
            assert b"root:" not in answer.data


@pytest.mark.parametrize("target", ["/v2/models/" + "m" * 60_000, "/v2/health/live?" + "q" * 60_000])
def test_a_target_that_the_endpoint_behind_does_not_take_is_refused_as_too_long(client, target):
    assert client.ask(Request("GET", target)).status == 414


NESTED = {
    "lists": b"[" * 10**6,
    "objects": b'{"a":' * 10**6,
    "a known member": b'{"parameters":' + b"[" * 10**6,
    "an unknown member": b'{"z":' + b"[" * 10**6 + b"]" * 10**6 + b"," + BODY[1:],
    "the data": BODY.replace(b"[1.5,", b"[" * 10**6),
}


@pytest.mark.parametrize("action", ["infer", "generate", "generate_stream"])
@pytest.mark.parametrize("name", NESTED)
def test_deeply_nested_json_is_refused(client, name, action):
    answer = client.ask(Request("POST", f"/v2/models/echo_FP32/{action}", NESTED[name]))
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/logging", "/v2/trace/setting", "/v2/models/x/load"])
def test_deeply_nested_json_ends_no_endpoint_behind_the_edge(client, path):
    assert client.ask(Request("POST", path, NESTED["lists"])).status >= 400


def test_a_body_of_a_million_chunks_is_read(client):
    body = b" " * 10**6 + BODY
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    client.send(post("Host: x", CHUNKED, body=chunks))
    assert client.answer("POST").status == 200


def bomb(size: int, kind: str) -> bytes:
    """Some bytes that become many."""
    compress = zlib.compressobj(9, wbits={"gzip": 31, "deflate": 15}[kind])
    head = compress.compress(b"") + compress.flush(zlib.Z_FULL_FLUSH)
    block = compress.compress(bytes(MIB)) + compress.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size // MIB)


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_a_body_that_becomes_too_long_is_refused_and_takes_no_memory(config, client, kind):
    before = memory_bytes(config)
    answer = refused(client, Request("POST", TARGET, bomb(512 * MIB, kind), {"Content-Encoding": kind}).encoded())
    assert answer is None or answer.status == 413
    assert memory_bytes(config) < before + 128 * MIB


def test_an_encoding_within_another_is_no_way_around_the_limit(client):
    body = gzip.compress(bomb(64 * MIB, "gzip"))
    answer = client.ask(Request("POST", TARGET, body, {"Content-Encoding": "gzip, gzip"}))
    assert answer.status >= 400


def test_a_body_that_is_too_long_is_refused_before_it_is_read(config, client):
    before = memory_bytes(config)
    refused(client, post("Host: x", f"Content-Length: {MOST_BYTES + 1}", body=bytes(MIB)))
    with connected(config) as other:
        refused(other, post("Host: x", CHUNKED, body=(b"100000\r\n" + bytes(MIB) + b"\r\n") * 32))
    assert memory_bytes(config) < before + 3 * MOST_BYTES


def test_the_longest_body_is_taken(client):
    array = np.ones((1, MIB), np.float32)
    request = infer("echo_FP32", numbers(array, binary=True), parameters={"binary_data_output": True})
    padded = Request("POST", TARGET, request.body, request.headers)
    assert len(padded.body) < MOST_BYTES
    assert client.ask(padded).data == array.tobytes()


def many(request: bytes) -> Iterator[tuple[str, bytes]]:
    """Beginnings of a request, by what is missing."""
    head = request.index(b"\r\n\r\n") + 4
    cuts = {"all": 0, "most of the first line": 3, "the other lines": 30, "the end of the head": head - 2}
    cuts |= {
        "the body": head,
        "half of the body": (head + len(request)) // 2,
        "the last byte": len(request) - 1,
        "nothing": len(request),
    }
    return ((name, request[:end]) for name, end in cuts.items())


BEGINNINGS = {
    f"{form} without {name}": data
    for form, request in {
        "a request": GOOD,
        "a chunked request": Request("POST", TARGET, BODY, chunks=[7, 9]).encoded(),
        "a forwarded request": Request("POST", "/v2/repository/index", b'{"ready": true}' + b" " * 60).encoded(),
        "a stream": Request("POST", "/v2/models/stream/generate_stream", b'{"text": "a", "count": 10000}').encoded(),
        "a large request": infer("echo_FP32", numbers(np.ones((1, MIB), np.float32), binary=True)).encoded(),
    }.items()
    for name, data in many(request)
}


def reset(connection: socket.socket) -> None:
    """Close a connection as a process does that dies."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("name", BEGINNINGS)
def test_clients_may_go_at_any_moment(config, name):
    endings: list[Callable[[socket.socket], object]] = [reset, socket.socket.close]
    for end in endings:
        with connected(config) as client:
            client.send(BEGINNINGS[name])
            end(client.socket)


@pytest.mark.parametrize("name", [name for name in BEGINNINGS if not name.endswith("without nothing")])
def test_a_client_that_sends_no_more_is_not_waited_for(client, name):
    client.send(BEGINNINGS[name])
    client.socket.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError, HTTPException):
        assert client.answer().status >= 400
    assert_closed(client)


def test_a_client_that_has_sent_its_request_may_close_its_half(client):
    client.send(GOOD)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.answer("POST").status == 200
    assert_closed(client)


def test_pipelined_requests_are_answered_in_their_order(client):
    arrays = [np.full((1, 3), number, np.float32) for number in range(200)]
    client.send(b"".join(infer("echo_FP32", numbers(array), id=str(array[0, 0])).encoded() for array in arrays))
    for array in arrays:
        assert client.answer("POST").json["id"] == str(array[0, 0])


def test_pipelined_requests_of_all_routes_keep_their_order(client):
    requests = [
        infer("echo_FP32", numbers(), id="1"),
        Request("GET", "/v2/health/live"),
        Request("POST", "/v2/models/stream/generate_stream", b'{"text": "a", "count": 3}'),
        Request("GET", "/unknown"),
        infer("unknown", numbers()),
        Request("GET", "/v2/models/pair"),
        infer("echo_FP32", numbers(), id="2"),
    ]
    client.send(b"".join(request.encoded() for request in requests))
    statuses = [client.answer(request.method).status for request in requests]
    assert statuses == [200, 200, 200, 404, 404, 200, 200]


def test_requests_follow_a_refused_one_on_the_same_connection_if_its_end_is_known(client):
    for body in (b"no JSON", b"{}", b"[" * 1000, BODY[:-1]):
        assert client.ask(Request("POST", TARGET, body)).status == 400
        assert client.ask(infer("echo_FP32", numbers())).status == 200


def test_a_request_may_come_byte_by_byte(client):
    for byte in GOOD:
        client.send(bytes([byte]))
    assert client.answer("POST").status == 200


def test_empty_lines_before_a_request_are_bounded(client):
    with suppress(ConnectionError):
        client.send(b"\r\n" * MIB)
    with suppress(ConnectionError, HTTPException):
        client.answer()


@contextmanager
def dripping(client: Client, data: bytes) -> Iterator[None]:
    """Send bytes slowly, until the server has had enough."""
    ended = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            for byte in data:
                client.send(bytes([byte]))
                if ended.wait(0.1):
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_head_that_comes_too_slowly_is_given_up(client):
    with dripping(client, b"POST / HTTP/1.1\r\nX-Slow: " + b"y" * 10_000):
        with suppress(ConnectionError, HTTPException):
            assert client.answer().status == 408
        assert_closed(client)


def test_a_body_that_comes_too_slowly_is_given_up(client):
    with dripping(client, b"") as _, suppress(ConnectionError):
        client.send(post("Host: x", "Content-Length: 1000", body=b"{"))
        with suppress(HTTPException):
            assert client.answer().status == 408
        assert_closed(client)


def test_a_body_that_drips_is_given_up(client):
    client.send(post("Host: x", "Content-Length: 100000", body=b""))
    with dripping(client, b" " * 10_000):
        with suppress(ConnectionError, HTTPException):
            assert client.answer().status == 408
        assert_closed(client)


def test_an_idle_connection_is_closed(client):
    assert client.ask(infer("echo_FP32", numbers())).status == 200
    assert_closed(client)


def test_a_client_that_reads_nothing_is_given_up_and_takes_little_memory(config, client, others):
    array = np.ones((1, 2 * MIB), np.float32)
    request = infer("echo_FP32", numbers(array, binary=True), parameters={"binary_data_output": True}).encoded()
    before = memory_bytes(config)
    client.socket.settimeout(0.2)
    with suppress(OSError):  # it takes the next request once the answer to this one is read
        for _ in range(20):
            client.send(request)
    others.wait_answered()
    assert memory_bytes(config) < before + 256 * MIB
    # The rest of the answer is dropped after the time-out, and the connection closed.
    client.socket.settimeout(60)
    time_out = time.monotonic() + 60
    received = 0
    while time.monotonic() < time_out:
        threading.Event().wait(0.5)
        try:
            peeked = client.socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            continue
        except ConnectionError:
            return
        if not peeked:
            return
        state = client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        received += 1
        if state != 1:  # not established any more
            return
    raise AssertionError("the connection was kept")


def test_a_thousand_idle_connections_keep_nobody_waiting(config, others):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    before = memory_bytes(config)
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(closing(Client(address(config)))) for _ in range(1000)]
            for client in clients[::10]:
                client.send(GOOD[:20])
            others.wait_answered()
            for client in clients[1::10]:
                client.send(GOOD)
            assert {client.answer("POST").status for client in clients[1::10]} == {200}
            assert memory_bytes(config) < before + 64 * MIB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address(config: TritonConfig) -> tuple[str, int]:
    return str(config.http_address), int(config.http_port or 0)


def test_wrong_tensors_of_all_sizes_do_no_harm(config):
    random = np.random.default_rng(11)
    with connected(config) as client:
        for _ in range(300):
            sizes = [int(2 ** random.integers(0, 63)) for _ in range(random.integers(1, 4))]
            more = {"shape": sizes, "parameters": {"binary_data_size": int(random.integers(0, 64))}}
            data = random.bytes(int(random.integers(0, 64)))
            tensor = Tensor("x", "FP32", np.frombuffer(data[: len(data) // 4 * 4], np.float32), True, more)
            request = infer("echo_FP32", tensor)
            head = int(request.headers[LENGTH])
            assert client.ask(Request("POST", TARGET, request.body[:head] + data, request.headers)).status == 400
