"""HTTP and gRPC at one port: with the clients of both, without TLS, with it, and at a Unix socket."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub as Stub

from pytriton.client import ModelClient, Tls
from pytriton.exceptions import PyTritonServerError, PyTritonValidationError
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.http2 import ACK, PREFACE, SETTINGS, Http2Client, call, frame, settings
from tests.server.own_server import server_of, serving
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

OPEN = TritonSecurityConfig(restricted_endpoints=[])
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
WAYS = ("plain", "TLS", "Unix socket")


@dataclass(frozen=True)
class Place:
    """Where a server is, for clients of all kinds."""

    config: TritonConfig
    certificates: Certificates | None = None
    path: str = ""

    @property
    def target(self) -> str:
        """As gRPC writes it."""
        return f"unix:{self.path}" if self.path else f"{LOCALHOST}:{self.config.http_port}"

    def context(self, *protocols: str) -> ssl.SSLContext | None:
        """TLS of a client that offers these protocols."""
        if self.certificates is None:
            return None
        context = ssl.create_default_context(cafile=self.certificates.root)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    def channel(self) -> Any:
        if self.certificates is None:
            return grpc.insecure_channel(self.target)
        return grpc.secure_channel(self.target, self.credentials())

    def credentials(self) -> Any:
        assert self.certificates is not None
        return grpc.ssl_channel_credentials(self.certificates.root.read_bytes())

    def http(self, context: ssl.SSLContext | None = None) -> httpx.Client:
        scheme = "https" if self.certificates else "http"
        transport = httpx.HTTPTransport(uds=self.path or None, verify=context or self.context() or True)
        return httpx.Client(transport=transport, base_url=f"{scheme}://{LOCALHOST}:{self.config.http_port}")

    @contextmanager
    def connected(self, *protocols: str) -> Iterator[Any]:
        if self.path:
            plain = socket.socket(socket.AF_UNIX)
            plain.settimeout(DEADLINE_S)
            plain.connect(self.path)
        else:
            plain = socket.create_connection((LOCALHOST, int(self.config.http_port or 0)), timeout=DEADLINE_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self.context(*protocols)
        with closing(context.wrap_socket(plain, server_hostname=LOCALHOST) if context else plain) as connection:
            yield connection


@contextmanager
def place_of(way: str, folder: Path, **options: Any) -> Iterator[Place]:
    with local_config(http_frontend="native", **options) as config:
        config = replace(config, grpc_port=config.http_port)
        if way == "plain":
            yield Place(config)
        elif way == "TLS":
            yield Place(encrypted(config, files := Certificates.in_folder(folder)), files)
        else:
            address = f"unix:{folder}/s"
            yield Place(replace(config, http_address=address, grpc_address=address), path=f"{folder}/s")


def encrypted(config: TritonConfig, files: Certificates) -> TritonConfig:
    given = {
        f"{protocol}_{name}": value
        for protocol in ("http", "grpc")
        for name, value in {"use_ssl": True, "server_cert": files.chain, "server_key": files.key}.items()
    }
    return replace(config, **given)


@pytest.fixture(scope="module", params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with the model ``m``, which has to be the same process afterwards."""
    with place_of(request.param, tmp_path_factory.mktemp("one")) as place:
        with serving(place.config, security_config=OPEN) as triton:
            triton.run()
            pid = server_of(place.config)
            yield place
            assert server_of(place.config) == pid
        if place.path:
            assert not Path(place.path).exists()


def message(value: float = 2.0) -> Any:
    made = pb.ModelInferRequest(model_name="m", raw_input_contents=[np.float32(value).tobytes()])
    made.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    return made


def body(value: float = 2.0) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [value]}]}


def test_both_protocols_have_their_clients(place):
    with place.channel() as channel, place.http() as client:
        stub = Stub(channel)
        for number in range(20):
            assert stub.ModelInfer(message(number)).raw_output_contents == [np.float32(2 * number).tobytes()]
            answer = client.post("/v2/models/m/infer", json=body(number)).json()
            assert answer["outputs"][0]["data"] == [2 * number]
        assert stub.ServerReady(pb.ServerReadyRequest()).ready
        assert client.get("/v2/health/ready").status_code == 200
        sent = message()
        assert len([*stub.ModelStreamInfer(iter([sent] * 100), timeout=DEADLINE_S)]) == 100


def test_a_large_message_passes(place):
    values = np.arange(2**20, dtype=np.float32).reshape(1, -1)
    made = pb.ModelInferRequest(model_name="m", raw_input_contents=[values.tobytes()])
    made.inputs.add(name="x", datatype="FP32", shape=[*values.shape])
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    secure = (place.credentials(),) if place.certificates else ()
    open_channel = grpc.secure_channel if secure else grpc.insecure_channel
    with open_channel(place.target, *secure, options=unlimited) as channel:
        assert Stub(channel).ModelInfer(made).raw_output_contents == [(values * 2).tobytes()]


def test_asynchronous_calls_are_answered(place):
    async def ask() -> list[Any]:
        if place.certificates:
            channel = grpc.aio.secure_channel(place.target, place.credentials())
        else:
            channel = grpc.aio.insecure_channel(place.target)
        async with channel:
            return await asyncio.gather(*(Stub(channel).ModelInfer(message(number)) for number in range(64)))

    expected = [[np.float32(2 * number).tobytes()] for number in range(64)]
    assert [[*answer.raw_output_contents] for answer in asyncio.run(ask())] == expected


def test_tritonclient_calls_both(place):
    if place.path:
        pytest.skip("tritonclient has no Unix sockets over HTTP")
    root = str(place.certificates.root) if place.certificates else None
    of_grpc = tritonclient.grpc.InferenceServerClient(place.target, ssl=root is not None, root_certificates=root)
    tls = {"ssl": True, "ssl_context_factory": lambda: place.context()} if root else {}
    of_http = tritonclient.http.InferenceServerClient(place.target, **tls)
    with closing(of_grpc), closing(of_http):
        for module, client in ((tritonclient.grpc, of_grpc), (tritonclient.http, of_http)):
            assert client.is_server_ready()
            tensor = module.InferInput("x", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.array([[4]], np.float32))
            assert client.infer("m", [tensor]).as_numpy("y").tolist() == [[8]]


def test_model_clients_call_both(place):
    tls = Tls(root_certificates=place.certificates.root) if place.certificates else None
    urls = [f"http+unix://{place.path}"] if place.path else [f"{name}://{place.target}" for name in ("http", "grpc")]
    for url in urls:
        with ModelClient(url, "m", tls=tls) as client:
            assert client.infer_sample(np.ones(2, np.float32))["y"].tolist() == [2, 2]


# How a connection is recognised


def answered(place: Place) -> bool:
    """Has another client served: the server's one loop has read by then what came before."""
    with place.http() as client:
        return client.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("at", range(1, len(PREFACE)))
def test_a_preface_may_come_in_two_parts(place, at):
    with place.connected() as connection:
        connection.sendall(PREFACE[:at])
        assert answered(place)
        connection.sendall(PREFACE[at:] + settings(table_size=0))
        assert connection.recv(9)[3] == SETTINGS


def test_a_preface_may_come_byte_by_byte_and_a_call_behind_it(place):
    sent = message().SerializeToString()
    with place.connected() as connection:
        for number in range(len(PREFACE)):
            connection.sendall(PREFACE[number : number + 1])
            assert answered(place)
        connection.sendall(settings(table_size=0) + frame(SETTINGS, ACK, 0) + call(1, sent))
        assert ending(connection) == "status 0"


def test_a_preface_may_come_with_a_call_in_one_part(place):
    sent = PREFACE + settings(table_size=0) + frame(SETTINGS, ACK, 0) + call(1, message().SerializeToString())
    with place.connected() as connection:
        connection.sendall(sent)
        assert ending(connection) == "status 0"


def ending(connection: Any) -> str:
    return Http2Client(connection, begins=False).ending(1)


@pytest.mark.parametrize("start", [b"P", b"PR", b"G", b"GET /v2/health/live HTTP/1.1\r\nHo"])
def test_a_request_of_http_may_come_in_two_parts(place, start):
    request = GET if GET.startswith(start) else b"PRI" + GET[3:]
    with place.connected() as connection:
        connection.sendall(start)
        assert answered(place)
        connection.sendall(request[len(start) :])
        assert connection.recv(17).startswith(b"HTTP/1.1 200" if request == GET else b"HTTP/1.1 4")


def test_what_begins_as_a_preface_and_is_none_is_refused_as_http(place):
    with place.connected() as connection:
        connection.sendall(PREFACE[:-6] + b"XX\r\n\r\n")
        assert connection.recv(12).startswith(b"HTTP/1.1")


def test_a_preface_is_one_at_the_beginning_alone(place):
    with place.connected() as connection:
        connection.sendall(GET)
        received = connection.recv(1 << 16)
        assert received.startswith(b"HTTP/1.1 200")
        connection.sendall(PREFACE + settings(table_size=0))
        assert connection.recv(12).startswith(b"HTTP/1.1 505")


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [(["h2"], "h2"), (["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "http/1.1"), (["other"], None), ([], None)],
)
def test_clients_of_tls_agree_on_their_protocol(tls_place, offered, agreed):
    with tls_place.connected(*offered) as connection:
        assert connection.selected_alpn_protocol() == agreed
        if agreed != "h2":
            connection.sendall(GET)
            assert connection.recv(12).startswith(b"HTTP/1.1 200")
    if agreed != "http/1.1":
        with tls_place.connected(*offered) as connection:
            connection.sendall(PREFACE + settings(table_size=0))
            assert connection.recv(9)[3] == SETTINGS


def test_what_was_agreed_on_holds(tls_place):
    with tls_place.connected("http/1.1") as connection:
        connection.sendall(PREFACE)
        assert connection.recv(12).startswith(b"HTTP/1.1 505")
    with tls_place.connected("h2") as connection:
        connection.sendall(GET)
        assert not connection.recv(1 << 16).startswith(b"HTTP")


@pytest.fixture(scope="module")
def tls_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with (
        place_of("TLS", tmp_path_factory.mktemp("tls")) as place,
        serving(place.config, security_config=OPEN) as triton,
    ):
        triton.run()
        yield place


# Limits, access, stops


def test_a_slow_preface_ends_with_the_time_for_a_head(tmp_path):
    with place_of("plain", tmp_path, http_timeout_s=1) as place, serving(place.config) as triton:
        triton.run()
        with place.connected() as connection:
            connection.sendall(PREFACE[:-1])
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408")
        with place.connected() as connection:
            connection.sendall(PREFACE)  # without settings
            received = b""
            while more := connection.recv(1 << 16):
                received += more
            assert received[3] == SETTINGS
        assert answered(place)


def test_connections_of_both_count_together(tmp_path):
    with place_of("plain", tmp_path, http_max_connections=2) as place, serving(place.config) as triton:
        triton.run()
        with place.connected() as one, place.connected() as other:
            one.sendall(PREFACE + settings(table_size=0))
            assert one.recv(9)[3] == SETTINGS
            other.sendall(GET)
            assert other.recv(12).startswith(b"HTTP/1.1 200")
            with place.connected() as third:
                assert third.recv(1) == b""


def test_both_ask_for_the_token_and_are_logged(tmp_path):
    log = tmp_path / "access.log"
    security = TritonSecurityConfig("secret", ["inference"])
    with (
        place_of("plain", tmp_path, http_access_log=str(log)) as place,
        serving(place.config, security_config=security) as triton,
    ):
        triton.run()
        with place.channel() as channel, place.http() as client:
            with pytest.raises(grpc.RpcError, match="restricted"):
                Stub(channel).ModelInfer(message())
            key = "triton-access-token"
            assert Stub(channel).ModelInfer(message(), metadata=[(f"triton-grpc-protocol-{key}", "secret")])
            assert client.post("/v2/models/m/infer", json=body()).status_code == 403
            assert client.post("/v2/models/m/infer", json=body(), headers={key: "secret"}).status_code == 200
        rows = [(each.name, each.address) for each in triton.exposure() if each.name in ("HTTP", "gRPC")]
        assert rows == [(name, f"{LOCALHOST}:{place.config.http_port}") for name in ("HTTP", "gRPC")]
    seen = [(line["route"], line["status"]) for line in map(json.loads, log.read_text().splitlines())]
    assert seen == [
        ("grpc_infer", 14), ("grpc_infer", 0), ("none", 403), ("infer", 200),
    ]  # fmt: skip


def listens(place: Place) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCALHOST, int(place.config.http_port or 0))) == 0


def test_a_stop_answers_what_is_in_flight_over_both(tmp_path):
    may_answer, called = threading.Event(), threading.Semaphore(0)

    def slow(requests: list[Any]) -> list[Any]:
        called.release(len(requests))  # which may be both
        assert may_answer.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    answers: list[Any] = []
    with place_of("plain", tmp_path) as place, serving(place.config, [slow, slow], security_config=OPEN) as triton:
        triton.run()
        with place.channel() as channel, place.http() as client:
            of_grpc = Stub(channel).ModelInfer.future(message(), timeout=DEADLINE_S)

            def post() -> None:
                answers.append(client.post("/v2/models/m/infer", json=body(), timeout=DEADLINE_S).status_code)

            of_http = threading.Thread(target=post)
            of_http.start()
            for _ in range(2):
                assert called.acquire(timeout=DEADLINE_S)
            stopping = threading.Thread(target=triton.stop)
            stopping.start()
            wait_for(lambda: not listens(place), "the end of its port")
            may_answer.set()
            of_http.join()
            stopping.join()
            assert of_grpc.code() is grpc.StatusCode.OK
    assert answers == [200]


# What is refused


def one(config: TritonConfig, **options: Any) -> TritonConfig:
    return replace(config, grpc_port=config.http_port, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grpc_frontend": "triton"}, "only the edge serves HTTP and gRPC at one port.*was chosen"),
        ({"http_frontend": "triton"}, "only the edge serves HTTP and gRPC at one port"),
        ({"trace_config": ["level=TIMESTAMPS"]}, "only the edge serves HTTP and gRPC at one port.*traces"),
        ({"http_restricted_api": "inference:key=value"}, r"inference is restricted otherwise .*header key.*\(open\)"),
        ({"grpc_restricted_protocol": "health:key=value"}, r"health is restricted otherwise .*open.*header key"),
        (
            {"http_restricted_api": "health:key=a", "grpc_restricted_protocol": "health:key=b"},
            "with another value",
        ),
    ],
)
def test_contradictions_are_refused(free_config, options, said):
    with pytest.raises(PyTritonValidationError, match=said) as raised:
        Triton(config=one(free_config, **options))
    assert "value'" not in str(raised.value)


def test_the_same_restrictions_over_both_are_none(free_config):
    rule = "inference:key=value"
    Triton(config=one(free_config, http_restricted_api=rule, grpc_restricted_protocol=rule))
    Triton(config=one(free_config), security_config=TritonSecurityConfig("secret", ["inference", "metrics"]))


CHANGES: list[tuple[str, Callable[[Certificates], dict[str, Any]], str]] = [
    ("one without TLS", lambda _: {"grpc_use_ssl": False}, "HTTP has TLS and gRPC no TLS"),
    ("another key", lambda other: {"grpc_server_key": other.key}, "http_server_key and grpc_server_key"),
    ("another chain", lambda other: {"http_server_cert": other.chain}, "http_server_cert and grpc_server_cert"),
    (
        "one that asks for certificates",
        lambda other: {"http_use_ssl_mutual": True, "http_root_cert": other.root},
        "HTTP has mutual TLS and gRPC TLS",
    ),
    (
        "another authority",
        lambda other: {
            **dict.fromkeys(("http_use_ssl_mutual", "grpc_use_ssl_mutual"), True),
            "http_root_cert": other.root,
            "grpc_root_cert": other.chain,
        },
        "http_root_cert and grpc_root_cert",
    ),
]


@pytest.mark.parametrize(("change", "said"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_two_kinds_of_tls_are_refused(free_config, tmp_path, change, said):
    (tmp_path / "other").mkdir()
    files, other = Certificates.in_folder(tmp_path), Certificates.in_folder(tmp_path / "other")
    with pytest.raises(PyTritonValidationError, match=said):
        Triton(config=replace(encrypted(one(free_config), files), **change(other)))


def test_one_port_at_two_addresses_is_refused(free_config):
    with (
        pytest.raises(PyTritonServerError, match="or both one address"),
        serving(one(free_config, grpc_address="127.0.0.2")) as triton,
    ):
        triton.run()
