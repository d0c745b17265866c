"""Proxies that the environment names: gRPC uses them, but not for servers of this machine; HTTP never does."""

import asyncio
import threading

import pytest
from tritonclient.grpc import service_pb2

from pytriton.client.auth import Tls
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.grpc_protocol import open_channel
from pytriton.client.utils import create_client_from_url
from tests.unit.loopback import Web, closed_address, listening, serving, serving_grpc
from tests.unit.transports import LIVE, transport_to

VARIABLES = ["grpc_proxy", "https_proxy", "http_proxy", "GRPC_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy"]
ALIVE = service_pb2.ServerLiveResponse(live=True)
ELSEWHERE = "model-server.invalid:8001"


@pytest.fixture
def use_proxy(monkeypatch):
    """Has the environment name a proxy, ``use_proxy(address)``, in every way there is."""
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def use(address):
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://{address}")

    return use


class Proxy:
    """Remembers what it was asked for, and closes the connection."""

    def __init__(self):
        self.asked, self.was_asked = [], threading.Event()

    def __call__(self, connection, stopped):
        connection.settimeout(10)
        self.asked.append(connection.recv(65536).partition(b"\r\n")[0].decode())
        self.was_asked.set()


def test_a_grpc_server_of_this_machine_is_called_without_the_proxy(use_proxy):
    with closed_address() as nobody, serving_grpc() as server:
        use_proxy(nobody)
        server.answer = ALIVE
        port = server.address.partition(":")[2]
        for host in ("127.0.0.1", "localhost"):
            with transport_to(f"{host}:{port}", "grpc") as transport:
                assert transport.call(LIVE) is True


def test_an_asyncio_client_calls_it_without_the_proxy_too(use_proxy):
    async def call(address):
        channel = open_channel(address, library="grpc.aio")
        try:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            return await live(b"", timeout=10)
        finally:
            await channel.close()

    with closed_address() as nobody, serving_grpc() as server:
        use_proxy(nobody)
        server.answer = ALIVE
        assert asyncio.run(call(server.address)) == b"\x08\x01"


def test_a_client_of_tritonclient_that_we_make_calls_it_without_the_proxy_too(use_proxy):
    with closed_address() as nobody, serving_grpc() as server:
        use_proxy(nobody)
        server.answer = ALIVE
        with create_client_from_url(f"grpc://{server.address}") as client:
            assert client.is_server_live(client_timeout=10) is True


@pytest.mark.parametrize("tls", [None, Tls()], ids=["plain", "tls"])
def test_a_grpc_server_elsewhere_is_called_through_the_proxy(use_proxy, tls):
    proxy = Proxy()
    with listening(proxy) as address:
        use_proxy(address)
        channel = open_channel(ELSEWHERE, tls)
        channel.unary_unary("/inference.GRPCInferenceService/ServerLive").future(b"", timeout=10)
        assert proxy.was_asked.wait(10)
        channel.close()
    assert proxy.asked[0] == f"CONNECT {ELSEWHERE} HTTP/1.1"


def test_an_http_client_uses_no_proxy(use_proxy):
    proxy = Proxy()
    with listening(proxy) as address, serving(Web()) as server:
        use_proxy(address)
        with transport_to(server.address) as transport:
            assert transport.call(Call("is_server_live", 10.0)) is True
        with transport_to(ELSEWHERE) as transport, pytest.raises(PyTritonClientError):
            transport.call(Call("is_server_live", 10.0))
    assert proxy.asked == []
