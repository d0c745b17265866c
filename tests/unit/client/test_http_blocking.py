"""HTTP over a blocking socket, against a scripted server."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time

import pytest

from pytriton.client import http_transports
from pytriton.client.auth import TritonUrl
from pytriton.client.http_messages import RequestWriter, ResponseReader
from pytriton.client.http_transports import BlockingConnection, HttpTransport
from tests.unit.loopback import fed, listening

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OTHER = OK.replace(b"ok", b"no")
PATIENCE_S = 30.0


class Script:
    """Sends the next of its answers to whatever arrives.

    Attributes:
        requests: What arrived, one entry for each answer.
        connections: How many were made.
    """

    def __init__(self, *answers, hang_up=False):
        self.answers, self.hang_up = list(answers), hang_up
        self.requests, self.connections = [], 0

    def __call__(self, connection, stopped):
        self.connections += 1
        while self.answers:
            request = connection.recv(2**20)
            if not request:
                break
            self.requests.append(request)
            for piece in self.answers.pop(0):
                connection.sendall(piece)
                time.sleep(0.005)
            if self.hang_up:
                break
        if self.hang_up:
            connection.shutdown(socket.SHUT_RDWR)


class Client:
    """Requests over a transport, before a deadline."""

    def __init__(self, url, timeout_s):
        self.url, self.deadline = url, time.monotonic() + timeout_s
        self.transport = HttpTransport(url, {}, None, None)

    def ask(self, body=b"", **headers):
        head = RequestWriter(self.url).head(b"POST" if body else b"GET", "v2/x", headers, len(body))
        return self.transport.exchange([head, body] if body else [head], self.deadline)


@contextlib.contextmanager
def client_of(talk, path="", timeout_s=math.inf):
    """A client of a server that talks so."""
    with listening(talk) as address:
        client = Client(TritonUrl.from_url(f"http://{address}{path}"), timeout_s)
        with contextlib.closing(client.transport):
            yield client


def ask(client, body=b"", **headers):
    return client.ask(body, **headers)


def test_requests_are_complete_and_answers_are_found_again():
    script = Script([OK], [OK])
    with client_of(script, "/base") as client:
        for body in (b"", b"body"):
            response = ask(client, body, name="value")
            assert (response.status, response.body) == (200, b"ok")
    assert script.connections == 1
    for request, method, body in zip(script.requests, [b"GET", b"POST"], [b"", b"body"], strict=True):
        head, _, sent = request.partition(b"\r\n\r\n")
        assert head.startswith(method + b" /base/v2/x HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nname: value\r\n" in head
        assert head.endswith(b"\r\nContent-Length: %d" % len(body))
        assert sent == body


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        pytest.param([OK[:10], OK[10:30], OK[30:-1], OK[-1:]], b"ok", id="pieces"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", b"3\r\n, y\r\n0\r\n\r\n"],
            b"ok, y",
            id="chunked",
        ),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", OK], b"ok", id="interim"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b"", id="empty"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", b"a" * 3_000_000], b"a" * 3_000_000, id="large"
        ),
    ],
)
def test_answers_of_all_shapes_are_read_to_their_end(pieces, body):
    script = Script(pieces, [OK])
    with client_of(script) as client:
        assert ask(client).body == body
        assert ask(client).body == b"ok"
    assert script.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="close"),
        pytest.param(OK.replace(b"1.1", b"1.0"), id="1.0"),
        pytest.param(OK + OTHER, id="two answers"),
    ],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(first):
    scripts = [Script([first]), Script([OK])]
    with client_of(lambda connection, stopped: scripts.pop(0)(connection, stopped)) as client:
        for _ in range(2):
            assert ask(client).body == b"ok"
    assert not scripts


def test_a_connection_that_the_server_closed_meanwhile_is_replaced():
    script = Script([OK], [OK], hang_up=True)
    with client_of(script) as client:
        assert ask(client).body == b"ok"
        assert client.transport._connection._readable.poll(PATIENCE_S * 1000)
        assert ask(client).body == b"ok"
    assert script.connections == 2


def test_the_rest_of_an_interrupted_answer_is_not_that_to_the_next_request(monkeypatch):
    class Interrupt(BaseException):
        """As Ctrl+C, which would end the tests if it got lost."""

    def interrupt(reader, count):
        raise Interrupt

    scripts = [Script([OTHER[:20]]), Script([OK])]
    with client_of(lambda connection, stopped: scripts.pop(0)(connection, stopped)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(http_transports.ResponseReader, "received", interrupt)
            with pytest.raises(Interrupt):
                ask(client)
        assert ask(client).body == b"ok"
    assert not scripts


def test_an_interrupt_while_the_parser_calls_is_no_connection_error():
    class Interrupt(BaseException):
        """As Ctrl+C."""

    class Interrupted(ResponseReader):
        def on_body(self, body):
            raise Interrupt

    with pytest.raises(Interrupt):
        fed(Interrupted(), OK)


@pytest.mark.parametrize(
    ("talk", "body"),
    [
        pytest.param(None, b"", id="silent"),
        pytest.param(None, b"x" * 50_000_000, id="reads nothing"),
        pytest.param(lambda connection, _: connection.sendall(OK[:10]), b"", id="half an answer"),
    ],
)
def test_the_deadline_bounds_sending_and_receiving(talk, body):
    with client_of(talk, timeout_s=0.2) as client, pytest.raises(TimeoutError):
        ask(client, body)


def test_the_deadline_bounds_the_search_for_a_host(monkeypatch):
    answered = threading.Event()
    real = socket.getaddrinfo

    def resolve(host, *args, flags=0, **kwargs):
        if not flags:
            answered.wait(PATIENCE_S)
        return real(host, *args, flags=flags, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(TimeoutError):
        BlockingConnection(TritonUrl.from_url("http://localhost:1"), None, time.monotonic() + 0.1)
    answered.set()


def test_a_deadline_that_has_passed_sends_nothing():
    script = Script([OK])
    with client_of(script, timeout_s=-1) as client, pytest.raises(TimeoutError):
        ask(client)
    assert script.connections == 0


def test_every_address_of_a_host_is_tried(monkeypatch, closed_port):
    refused = closed_port.split(":")
    with client_of(Script([OK])) as client:
        good = ("127.0.0.1", client.url.port)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (refused[0], int(refused[1])))]
        found.append((socket.AF_INET, socket.SOCK_STREAM, 0, "", good))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert ask(client).body == b"ok"
        client.transport.close()
        found.pop()
        with pytest.raises(ConnectionRefusedError):
            ask(client)
