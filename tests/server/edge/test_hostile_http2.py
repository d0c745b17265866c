"""HTTP/2 that no library sends, to gRPC at the edge.

Each client gets a clear status or a closed connection, what it takes is bounded, and others are served meanwhile.
"""

from __future__ import annotations

import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub as Stub

from pytriton.config import TritonConfig
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SERVICE,
    SETTINGS,
    WINDOW_UPDATE,
    Http2Client,
    call,
    field,
    frame,
    head,
    message,
    settings,
)
from tests.server.edge.test_hostile_clients import bomb, memory_bytes
from tests.server.edge.test_storms import sample
from tests.server.edge.wire import connected
from tests.server.gated import Gated
from tests.server.own_server import TENSORS, double, server_of
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

MIB = 2**20
MOST_BYTES = 16 * MIB  # of a message, for the server of these tests
MOST_BUFFERED = 256 * MIB
STREAM_WINDOW = 4 * MIB
TIMEOUT_S = 2
MANY = 100_000
OPTIONS = {
    "http_max_body_bytes": MOST_BYTES,
    "http_max_json_bytes": 8 * MIB,
    "http_max_buffered_bytes": MOST_BUFFERED,
    "http_timeout_s": TIMEOUT_S,
    "http_metrics": True,
}


def request(model: str, values: int = 4, **options: Any) -> bytes:
    made = pb.ModelInferRequest(model_name=model, **options)
    made.inputs.add(name="x", datatype="FP32", shape=[1, values])
    made.raw_input_contents.append(bytes(4 * values))
    return made.SerializeToString()


GOOD = request("double")


class Models:
    """Callables that a test holds up."""

    def __init__(self) -> None:
        self.gated = Gated()

    def long(self, requests: list[Any]) -> Iterator[list[Any]]:
        """1,000 responses of 1 MiB."""
        for _ in range(1000):
            yield [{"y": np.zeros((1, MIB // 4), np.float32)}]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


@pytest.fixture(scope="module", params=["plain", pytest.param("encrypted", marks=pytest.mark.thorough)])
def served(
    request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TritonConfig, Certificates | None]]:
    """The configuration of a server, with TLS for gRPC or without, and its certificates."""
    options: dict[str, Any] = dict(OPTIONS)
    certificates = None
    if request.param == "encrypted":
        certificates = Certificates.in_folder(tmp_path_factory.mktemp("certificates"))
        options |= {
            "grpc_use_ssl": True,
            "grpc_server_cert": certificates.chain,
            "grpc_server_key": certificates.key,
            "grpc_root_cert": certificates.root,
        }
    with (
        local_config(grpc_frontend="edge", **options) as config,
        Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton,
    ):
        batched = ModelConfig(max_batch_size=64)
        decoupled = ModelConfig(max_batch_size=1, decoupled=True, batcher=None)
        triton.bind("double", double, *TENSORS, config=batched)
        triton.bind("gated", models.gated, *TENSORS, config=batched)
        triton.bind(
            "long", models.long, [Tensor((-1,), np.float32, "x")], [Tensor((-1,), np.float32, "y")], config=decoupled
        )
        triton.run()
        yield config, certificates


@pytest.fixture(scope="module")
def config(served: tuple[TritonConfig, Certificates | None]) -> TritonConfig:
    return served[0]


class Others:
    """Another client, which infers all the time."""

    def __init__(self, config: TritonConfig, certificates: Certificates | None) -> None:
        self.answered, self.failures = 0, list[BaseException]()
        self._address = f"{LOCALHOST}:{config.grpc_port}"
        self._root = certificates.root.read_bytes() if certificates else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._infer)

    def _infer(self) -> None:
        if self._root:
            channel = grpc.secure_channel(self._address, grpc.ssl_channel_credentials(self._root))
        else:
            channel = grpc.insecure_channel(self._address)
        with channel:
            while not self._ended.wait(0.01):
                try:
                    Stub(channel).ModelInfer(pb.ModelInferRequest.FromString(GOOD), timeout=DEADLINE_S)
                    self.answered += 1
                except BaseException as error:
                    self.failures.append(error)

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
def others(served: tuple[TritonConfig, Certificates | None]) -> Iterator[Others]:
    with Others(*served) as others:
        yield others


@pytest.fixture(autouse=True)
def survivor(config: TritonConfig, others: Others) -> Iterator[None]:
    """During and after each test, the same process answers other clients."""
    pid = server_of(config)
    yield
    others.wait_answered()
    assert server_of(config) == pid


Connect = Callable[..., Http2Client]


@pytest.fixture
def connect(served: tuple[TritonConfig, Certificates | None]) -> Iterator[Connect]:
    """Makes connections, which are closed at the end."""
    config, certificates = served
    context = None
    if certificates:
        context = ssl.create_default_context(cafile=str(certificates.root))
        context.set_alpn_protocols(["h2"])
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Http2Client.at(int(config.grpc_port or 0), context, **options))


@pytest.fixture
def client(connect: Connect) -> Http2Client:
    return connect()


@pytest.fixture
def closed_gate(models: Models) -> Iterator[Gated]:
    """The model whose calls wait."""
    models.gated.reset()
    yield models.gated
    models.gated.gate.open()


def in_flight(config: TritonConfig) -> int:
    """The requests that the server has, this one among them."""
    with connected(config) as client:
        return sample(client, "pytriton_http_requests_in_flight")


# What cannot be read

BROKEN: dict[str, bytes] = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a wrong preface": PREFACE[:-1] + b"x",
    "no settings": PREFACE + frame(PING, 0, 0, bytes(8)),
    "random bytes": np.random.default_rng(7).bytes(4096),
    "random frames": PREFACE + settings() + np.random.default_rng(8).bytes(4096),
    "a frame that is too long": PREFACE + settings() + b"\xff\xff\xff\0\0\0\0\0\1",
    "DATA on stream 0": PREFACE + settings() + frame(DATA, 0, 0, b"a"),
    "DATA on a stream that is not open": PREFACE + settings() + frame(DATA, 0, 1, b"a"),
    "HEADERS on stream 0": PREFACE + settings() + frame(HEADERS, 5, 0, head()),
    "HEADERS on an even stream": PREFACE + settings() + frame(HEADERS, 5, 2, head()),
    "a stream below the last one": PREFACE + settings() + call(3, GOOD) + call(1, GOOD),
    "CONTINUATION without HEADERS": PREFACE + settings() + frame(CONTINUATION, 4, 1, head()),
    "CONTINUATION of another stream": PREFACE + settings() + frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 3, head()),
    "a frame within a head": PREFACE + settings() + frame(HEADERS, 0, 1) + frame(PING, 0, 0, bytes(8)),
    "an index that is not in the table": PREFACE + settings() + frame(HEADERS, 5, 1, b"\xff\xff\x7f"),
    "an endless number": PREFACE + settings() + frame(HEADERS, 5, 1, b"\xff" * 100),
    "a table that is too large": PREFACE + settings() + frame(HEADERS, 5, 1, b"\x3f\xff\xff\xff\x7f"),
    "a wrong Huffman code": PREFACE + settings() + frame(HEADERS, 5, 1, b"\0\x84\xff\xff\xff\xff\1a"),
    "a string beyond its frame": PREFACE + settings() + frame(HEADERS, 5, 1, b"\0\x7f\xff\xff\xff\x0f"),
    "padding that is too long": PREFACE + settings() + frame(HEADERS, 5 | PADDED, 1, b"\xff" + head()[:20]),
    "a push": PREFACE + settings() + frame(PUSH_PROMISE, 4, 1, struct.pack("!I", 2) + head()),
    "a short RST_STREAM": PREFACE + settings() + frame(RST_STREAM, 0, 1, b"a"),
    "RST_STREAM of a stream that never was": PREFACE + settings() + frame(RST_STREAM, 0, 1, bytes(4)),
    "a short PING": PREFACE + settings() + frame(PING, 0, 0, b"a"),
    "a short WINDOW_UPDATE": PREFACE + settings() + frame(WINDOW_UPDATE, 0, 0, b"a"),
    "a window of nothing": PREFACE + settings() + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "a window that is too large": PREFACE + settings() + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "windows of streams that are too large": PREFACE + settings(window=2**31),
    "settings of another length": PREFACE + frame(SETTINGS, 0, 0, b"abc"),
    "settings on a stream": PREFACE + frame(SETTINGS, 0, 1),
    "an acknowledgement with content": PREFACE + settings() + frame(SETTINGS, 1, 0, bytes(6)),
    "33 settings in a frame": PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", 4, 9) * 33),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_http2_ends_the_connection(connect, name):
    client = connect(begins=False)
    client.send(BROKEN[name])
    assert client.end() == "closed" or name != "HTTP/1.1"


def fields_of(**changed: bytes | None) -> bytes:
    """A head with some fields changed, or left out."""
    pairs: dict[bytes, bytes | None] = {
        b":method": b"POST", b":scheme": b"http", b":path": (SERVICE + "ModelInfer").encode(), b":authority": b"a",
        b"content-type": b"application/grpc", b"te": b"trailers",
    }  # fmt: skip
    for name, value in changed.items():
        pairs[name.replace("__", ":").replace("_", "-").encode()] = value
    return b"".join(field(name, value) for name, value in pairs.items() if value is not None)


HEADS: dict[str, bytes] = {
    "another method": fields_of(__method=b"GET"),
    "no method": fields_of(__method=None),
    "no path": fields_of(__path=None),
    "an empty path": fields_of(__path=b""),
    "another type": fields_of(content_type=b"application/json"),
    "no type": fields_of(content_type=None),
    "a path twice": fields_of() + field(b":path", b"/other"),
    "an unknown pseudo-field": field(b":other", b"a") + fields_of(),
    "a field in upper case": fields_of() + field(b"X-A", b"b"),
    "a field of HTTP/1.1": fields_of(connection=b"close"),
    "a transfer coding": fields_of(transfer_encoding=b"chunked"),
    "a deadline that is no number": fields_of(grpc_timeout=b"soon"),
    "a deadline of nine digits": fields_of(grpc_timeout=b"123456789S"),
    "a negative deadline": fields_of(grpc_timeout=b"-1S"),
    "two lengths": fields_of(content_length=b"5") + field(b"content-length", b"6"),
    "a length that is not that of the message": fields_of(content_length=str(10 * 2**30).encode()),
    "257 fields": fields_of() + b"".join(field(b"x-%d" % index, b"") for index in range(257)),
    "16 MiB of fields": fields_of() + b"".join(field(b"x-%d" % index, b"y" * 8000) for index in range(12)),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_none_of_grpc_resets_its_stream_and_others_of_the_connection_are_answered(client, name):
    block = HEADS[name]
    first, *rest = [block[at : at + 16000] for at in range(0, len(block), 16000)]
    client.send(frame(HEADERS, 0 if rest else END_HEADERS, 1, first))
    for part in rest:
        client.send(frame(CONTINUATION, END_HEADERS if part is rest[-1] else 0, 1, part))
    client.send(frame(DATA, END_STREAM, 1, message(GOOD)))
    assert client.ending(1).startswith("reset")
    client.send(call(3, GOOD))
    assert client.ending(3) == "status 0"


@pytest.mark.parametrize(
    ("data", "ending"),
    [
        (b"", "status 13"),
        (b"\0\0", "status 13"),
        (message(GOOD)[:-1], "status 13"),
        (message(GOOD) * 2, "reset 1"),
        (b"\2" + message(GOOD)[1:], "reset 1"),
        (message(GOOD, is_compressed=True), "status 13"),
        (message(b"\xff" * 100), "status 3"),
        (message(b"\x0b" * 4), "status 3"),  # groups
        (message(b"\x0a" + b"\xff" * 9 + b"\x01"), "status 3"),
        (b"\0" + b"\xff" * 4, "status 8"),
        (struct.pack("!BI", 0, MOST_BYTES + 1), "status 8"),
    ],
    ids=["nothing", "half a prefix", "a message that is cut off", "two messages", "an unknown flag",
         "what is not compressed", "no protobuf", "groups", "a length of 2^63", "4 GiB", "more than there may be"],
)  # fmt: skip
def test_a_message_that_is_none_has_a_clear_status(client, data, ending):
    more = ((b"grpc-encoding", b"gzip"),) if data[:1] == b"\1" else ()
    client.send(frame(HEADERS, END_HEADERS, 1, head("ModelInfer", *more)) + frame(DATA, END_STREAM, 1, data))
    assert client.ending(1) == ending


def parameters(count: int) -> bytes:
    made = pb.ModelInferRequest.FromString(GOOD)
    for index in range(count):
        made.parameters[str(index)].bool_param = True
    return made.SerializeToString()


def outputs(count: int) -> bytes:
    made = pb.ModelInferRequest.FromString(GOOD)
    made.outputs.extend([pb.ModelInferRequest.InferRequestedOutputTensor(name="y")] * count)
    return made.SerializeToString()


@pytest.mark.parametrize(("content", "status"), [(parameters(1024), 0), (parameters(1025), 3), (outputs(16385), 3)])
def test_parameters_and_outputs_are_bounded(client, content, status):
    client.send(frame(HEADERS, END_HEADERS, 1, head()))
    client.send_all(DATA, 1, message(content))
    assert client.ending(1) == f"status {status}"


# Floods


def test_a_client_that_resets_too_many_streams_is_closed(config, client, closed_gate):
    """By our limit of requests that have begun (11), or by nghttp2's of resets (2) where few have."""
    started = b"".join(
        call(stream, request("gated")) + frame(RST_STREAM, 0, stream, bytes(4)) for stream in range(1, 6000, 2)
    )
    client.send(started)
    assert client.end() in ("goaway 11", "goaway 2")
    wait_for(lambda: in_flight(config) < 100, "the reset requests to be cancelled")


RESETS_OF_THE_SERVER: dict[str, Callable[[int], bytes]] = {
    "a second message": lambda stream: frame(DATA, 0, stream, message(GOOD)),
    "an unknown flag": lambda stream: frame(DATA, 0, stream, b"\2\0\0\0\0"),
    "a window of nothing": lambda stream: frame(WINDOW_UPDATE, 0, stream, bytes(4)),
    "a window that is too large": lambda stream: frame(WINDOW_UPDATE, 0, stream, b"\x7f\xff\xff\xff") * 2,
    "a message that is too long": lambda stream: frame(DATA, 0, stream, b"\0\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("name", RESETS_OF_THE_SERVER)
def test_a_client_that_makes_the_server_reset_streams_is_closed(config, client, closed_gate, name):
    """Each request has begun, so that the server would have to cancel any number of them.

    A slow server reads more requests at once than streams may be open, before it resets them (1 in place of 11).
    """
    more = RESETS_OF_THE_SERVER[name]
    block = head("ModelStreamInfer") if name in ("an unknown flag", "a message that is too long") else head()
    begun = frame(DATA, 0, 1, message(request("gated")))
    for stream in range(1, 40_000, 2):
        at = struct.pack("!I", stream)
        sent = frame(HEADERS, END_HEADERS, stream, block) + begun[:5] + at + begun[9:] + more(stream)
        if not client.send(sent):
            break
    expected = {"a window of nothing": ["goaway 1"], "a window that is too large": ["goaway 3"]}
    assert client.end() in expected.get(name, ["goaway 11", "goaway 1"])
    wait_for(lambda: in_flight(config) < 100, "the requests to be cancelled")


def test_frames_that_continue_a_head_are_bounded(client):
    client.send(frame(HEADERS, 0, 1, head()))
    client.send(frame(CONTINUATION, 0, 1, b"") * MANY)
    assert client.end() in ("goaway 11", "closed")


@pytest.mark.parametrize(
    "flood",
    [
        settings(),
        settings(window=0) + settings(window=2**31 - 1),
        frame(PING, 0, 0, bytes(8)),
        frame(PRIORITY, 0, 1, struct.pack("!IB", 3, 1)),
        frame(0xBE, 0, 0, b"a"),
        frame(DATA, 0, 1),
        frame(DATA, PADDED, 1, b"\0"),
        frame(WINDOW_UPDATE, 0, 1, bytes(4)),
    ],
    ids=[
        "settings",
        "changing windows",
        "pings",
        "priorities",
        "unknown frames",
        "DATA of nothing",
        "padding",
        "windows",
    ],
)
@pytest.mark.parametrize("reads", [True, False])
def test_floods_of_small_frames_end_the_connection(config, client, flood, reads):
    """Also if they begin streams whose windows the settings change."""
    before = memory_bytes(config)
    client.send(b"".join(frame(HEADERS, END_HEADERS, stream, head("ModelStreamInfer")) for stream in range(1, 1000, 2)))
    ended, reader = [], threading.Thread(target=lambda: ended.append(client.end()))
    if reads:
        reader.start()
    part = flood * 1000
    for _ in range(2000):
        if not client.send(part):
            break
    if not reads:
        reader.start()
    reader.join()
    assert ended[0] in ("goaway 11", "goaway 1", "closed")
    assert memory_bytes(config) < before + 64 * MIB


def test_more_streams_than_a_connection_may_have_end_it(client):
    last = 2 * 1000 + 1
    client.send(
        b"".join(frame(HEADERS, END_HEADERS, stream, head("ModelStreamInfer")) for stream in range(1, last + 2, 2))
    )
    assert client.ending(last) == "goaway 1"


def table_of_large_fields() -> bytes:
    """A head that puts a field of 4,000 bytes into the table."""
    return head("ModelStreamInfer") + field(b"x", b"y" * 3900, 0x40)


def test_heads_that_the_table_makes_large_are_of_the_account(config, connect):
    """A byte is 4 KB, in each of 1,000 streams of each connection."""
    before, answers = memory_bytes(config), list[str]()
    for _ in range(20):
        client = connect()
        client.send(frame(HEADERS, END_HEADERS, 1, table_of_large_fields()))
        repeated = head("ModelStreamInfer") + b"\xbe" * 15
        client.send(b"".join(frame(HEADERS, END_HEADERS, stream, repeated) for stream in range(3, 1000, 2)))
        client.send(frame(HEADERS, END_HEADERS, 1001, repeated) + frame(DATA, END_STREAM, 1001, message(GOOD)))
        answers.append(client.ending(1001))
    assert (answers[0], answers[-1]) == ("status 0", "status 14")
    assert memory_bytes(config) < before + MOST_BUFFERED + 64 * MIB


def test_a_head_that_the_table_makes_too_large_is_refused(config, client):
    before = memory_bytes(config)
    client.send(frame(HEADERS, END_HEADERS, 1, table_of_large_fields()))
    for stream in range(3, 21, 2):
        client.send(frame(HEADERS, END_HEADERS, stream, head("ModelStreamInfer") + b"\xbe" * 16000))
        assert client.ending(stream).startswith("reset")
    assert memory_bytes(config) < before + 32 * MIB


# Windows


def test_a_client_that_opens_no_window_is_given_up(config, connect):
    before = memory_bytes(config)
    client = connect(begins=False)
    client.send(PREFACE + settings(table_size=0, window=0) + frame(SETTINGS, ACK, 0))
    client.send(b"".join(call(stream, request("double", 1000)) for stream in range(1, 1000, 2)))
    assert client.ending(999) == "reset 8"
    assert memory_bytes(config) < before + 64 * MIB


def test_a_client_whose_window_grows_by_bytes_is_given_up(connect):
    client = connect(begins=False)
    client.send(PREFACE + settings(table_size=0, window=0) + frame(SETTINGS, ACK, 0))
    client.send(frame(HEADERS, END_HEADERS, 1, head()))
    client.send_all(DATA, 1, message(request("double", MIB // 4)))
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.02) and client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 1))):
            pass

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert client.ending(1) == "reset 8"
    ended.set()
    dripping.join()


def test_a_client_that_reads_nothing_of_long_streams_takes_bounded_memory(config, client):
    before = memory_bytes(config)
    client.send(b"".join(call(stream, request("long"), "ModelStreamInfer") for stream in range(1, 20, 2)))
    assert client.ending(19) in ("reset 8", "reset 11")
    assert memory_bytes(config) < before + 640 * MIB


def test_bytes_beyond_the_window_end_the_connection(client, closed_gate):
    """The window of a stream is not opened again while it has 1,024 requests in flight."""
    one = message(request("gated"))
    count = STREAM_WINDOW // len(one) + 1
    client.send(frame(HEADERS, END_HEADERS, 1, head("ModelStreamInfer")))
    client.send_all(DATA, 1, one * count, end=False)
    assert client.end() == "goaway 3"


# Time


@pytest.mark.parametrize("sent", [b"", PREFACE[:10], PREFACE, PREFACE + b"\0\0"], ids=len)
def test_a_connection_that_does_not_begin_is_closed(connect, sent):
    client = connect(begins=False)
    client.send(sent)
    assert client.end() == "closed"


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_head_that_does_not_end_is_given_up(client, method):
    client.send(frame(HEADERS, 0, 1, head(method)))
    assert client.ending(1) != "status 0"


@pytest.mark.parametrize(
    "sent", [b"", b"\0\0", message(GOOD)[:-1], struct.pack("!BI", 0, MOST_BYTES) + bytes(1000)], ids=len
)
def test_a_message_that_does_not_end_is_given_up(client, sent):
    client.send(frame(HEADERS, END_HEADERS, 1, head()))
    if sent:
        client.send(frame(DATA, 0, 1, sent))
    assert client.ending(1) == "reset 8"


def test_a_message_that_drips_is_given_up(client):
    client.send(frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, struct.pack("!BI", 0, MOST_BYTES)))
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.05) and client.send(frame(DATA, 0, 1, b"a")):
            pass

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert client.ending(1) == "reset 8"
    ended.set()
    dripping.join()


def test_a_connection_without_streams_is_told_to_go(client):
    client.send(call(1, GOOD))
    assert client.ending(1) == "status 0"
    assert client.end() == "goaway 0"


def test_streams_without_requests_stay(client):
    """They are the client's to end, like a chat whose user thinks."""
    client.send(frame(HEADERS, END_HEADERS, 1, head("ModelStreamInfer")) + frame(DATA, 0, 1, message(GOOD)))
    client.timeout_s = 3 * TIMEOUT_S
    with pytest.raises(TimeoutError):
        client.ending(1)
    client.timeout_s = DEADLINE_S
    client.send(frame(DATA, END_STREAM, 1, message(GOOD)))
    assert client.ending(1) == "status 0"


# Memory


def test_responses_that_nobody_reads_of_many_streams_are_of_the_account(config, connect):
    """A request of a few bytes is answered with the files of a service."""
    before, sent = memory_bytes(config), message(bytes([0x22, 30]) + b"inference.GRPCInferenceService") * 3
    path = field(b":path", b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    block = head().replace(field(b":path", f"{SERVICE}ModelInfer".encode()), path)
    for _ in range(12):
        client = connect(begins=False)
        client.send(PREFACE + settings(table_size=0, window=0) + frame(SETTINGS, ACK, 0))
        for stream in range(1, 2000, 2):
            client.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, sent))
        client.send(frame(PING, 0, 0, bytes(8)))
        next(each for each in client.frames() if each.kind in (PING, GOAWAY))
    assert memory_bytes(config) < before + MOST_BUFFERED + 128 * MIB


def test_what_is_announced_takes_no_memory_before_it_comes(config, connect):
    before = memory_bytes(config)
    for _ in range(20):
        client = connect()
        for stream in range(1, 200, 2):
            client.send(
                frame(HEADERS, END_HEADERS, stream, head())
                + frame(DATA, 0, stream, struct.pack("!BI", 0, MOST_BYTES) + b"a")
            )
    assert memory_bytes(config) < before + 64 * MIB


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer", "RepositoryModelLoad", "ServerLive"])
@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_a_message_that_becomes_too_long_is_refused_and_takes_no_memory(config, client, kind, method):
    before = memory_bytes(config)
    sent = bomb(512 * MIB if method.startswith("Model") else 32 * MIB, kind)
    client.send(frame(HEADERS, END_HEADERS, 1, head(method, (b"grpc-encoding", kind.encode()))))
    client.send_all(DATA, 1, message(sent, is_compressed=True))
    assert client.ending(1) == "status 8"
    assert memory_bytes(config) < before + 128 * MIB


def test_bytes_behind_what_is_compressed_are_refused(client):
    content = zlib.compress(GOOD) + b"more"
    client.send(frame(HEADERS, END_HEADERS, 1, head("ModelInfer", (b"grpc-encoding", b"deflate"))))
    client.send_all(DATA, 1, message(content, is_compressed=True))
    assert client.ending(1) == "status 13"


def test_an_unknown_compression_is_told(client):
    client.send(frame(HEADERS, END_HEADERS, 1, head("ModelInfer", (b"grpc-encoding", b"snappy"))))
    client.send_all(DATA, 1, message(GOOD, is_compressed=True))
    assert client.ending(1) == "status 12"
