"""Clients of a server that listens on a Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import socketserver
import threading
from contextlib import closing

import numpy as np
import pytest
import uvloop

from pytriton.client import AsyncioModelClient, FuturesModelClient, ModelClient
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInvalidUrlError,
    PyTritonClientTimeoutError,
)
from pytriton.client.http_pool import ConnectionPool
from pytriton.client.http_transports import AsyncHttpTransport, HttpTransport
from pytriton.client.utils import create_client_from_url
from tests.unit.loopback import INFERRED, ModelServer, X, paths, serving

TIMEOUT_S = 30.0


class UnixModelServer(ModelServer):
    """As :class:`ModelServer`, at a path."""

    address_family = socket.AF_UNIX

    def __init__(self, path):
        self._path = str(path)
        super().__init__()

    def server_bind(self):
        self.server_address = self._path
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 80


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Of a socket, short enough wherever temporary files are."""
    monkeypatch.chdir(tmp_path)
    folder = f"/proc/{os.getpid()}/cwd"
    return f"{folder}/x.sock"


@pytest.fixture
def server(path):
    with serving(UnixModelServer(path)) as server:
        yield server


@pytest.mark.parametrize("form", ["http+unix://{}", "{quoted}"])
def test_the_synchronous_client_infers_over_a_socket(server, path, form):
    url = form.format(path, quoted="http+unix://" + path.replace("/", "%2F"))
    server.token = "secret"
    with ModelClient(url, "m", access_token="secret") as client:
        assert np.array_equal(client.infer_batch(X)["x"], X)
        assert np.array_equal(client.infer_sample(X[0])["x"], X[0])
    assert paths(server)[-1] == INFERRED
    assert server.requests[-1][1]["host"] == "localhost:80"
    assert server.requests[-1][1]["triton-access-token"] == "secret"


def test_a_client_made_from_another_one_calls_the_same_socket(server, path):
    with ModelClient(f"http+unix://{path}", "m") as first, ModelClient.from_existing_client(first) as second:
        assert np.array_equal(second.infer_batch(X)["x"], X)


def test_the_asynchronous_client_infers_over_a_socket(server, path):
    async def run():
        async with AsyncioModelClient(f"http+unix://{path}", "m") as client:
            return await asyncio.gather(*(client.infer_batch(X) for _ in range(8)))

    assert all(np.array_equal(each["x"], X) for each in asyncio.run(run()))


def test_the_client_of_futures_infers_over_a_socket(server, path):
    with FuturesModelClient(f"http+unix://{path}", "m") as client:
        answers = [client.infer_batch(X) for _ in range(8)]
        assert all(np.array_equal(each.result(30)["x"], X) for each in answers)


def test_errors_name_the_socket(path):
    url = f"http+unix://{path}"
    with (
        ModelClient(url, "m", lazy_init=True, ensure_model_is_ready=False) as client,
        pytest.raises(PyTritonClientTimeoutError, match=path),
    ):
        client.wait_for_server(0.1)
    with pytest.raises(PyTritonClientConnectionError, match=path):
        HttpTransport(TritonUrl.from_url(url), {}, None, None).call(Call("is_server_live", 1.0))


def full_of_connections(path):
    """A socket that listens, at which no connection can be made."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(path)
    return listener, waiting


@pytest.mark.parametrize("kind", [HttpTransport, AsyncHttpTransport])
def test_a_client_waits_for_its_place_in_the_queue_of_a_busy_server(path, kind):
    listener, waiting = full_of_connections(path)
    transport = kind(TritonUrl.from_url(f"http+unix://{path}"), {}, None, None)

    def serve():
        with waiting, listener, listener.accept()[0], listener.accept()[0] as connection:
            connection.recv(2**16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    timer = threading.Timer(0.1, serve)
    timer.start()

    async def call():
        try:
            return await transport.call(Call("is_server_live", 30.0))
        finally:
            await transport.close()

    if kind is AsyncHttpTransport:
        assert asyncio.run(call())
    else:
        with closing(transport):
            assert transport.call(Call("is_server_live", 30.0))
    timer.join()


def test_a_client_gives_a_busy_server_up_at_its_timeout(path):
    listener, waiting = full_of_connections(path)
    with (
        listener,
        waiting,
        closing(HttpTransport(TritonUrl.from_url(f"http+unix://{path}"), {}, None, None)) as transport,
        pytest.raises(PyTritonClientTimeoutError, match=path),
    ):
        transport.call(Call("is_server_live", 0.05))


def test_tritonclient_is_not_given_a_socket(path):
    with pytest.raises(PyTritonClientInvalidUrlError, match="ModelClient"):
        create_client_from_url(f"http+unix://{path}")


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("turns", range(6))
def test_a_request_that_is_cancelled_while_it_connects_leaves_a_pool_that_can_be_closed(server, path, loop_of, turns):
    async def connect_and_close():
        pool = ConnectionPool(TritonUrl.of_socket(path), 1, None)
        request = asyncio.ensure_future(pool.exchange([b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"]))
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await pool.close()

    with closing(loop_of()) as loop:
        loop.run_until_complete(asyncio.wait_for(connect_and_close(), TIMEOUT_S))
