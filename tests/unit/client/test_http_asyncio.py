"""HTTP over kept-alive connections, against a scripted server in the same event loop."""

from __future__ import annotations

import asyncio
import functools
import math
import socket
from contextlib import suppress

import pytest

from pytriton.client.auth import TritonUrl
from pytriton.client.http_messages import RequestWriter
from pytriton.client.http_pool import ConnectionPool
from tests.unit.loops import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TIMEOUT_S = 30.0


class Server:
    """Sends the next of its answers to whatever arrives.

    Attributes:
        requests: What arrived, one entry for each answer.
        connections: How many were made.
    """

    def __init__(self, *answers, hang_up=False):
        self.answers = list(answers)
        self.requests = []
        self.connections = 0
        self._hang_up = hang_up
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def pool(self, limit=8, path=""):
        port = self._server.sockets[0].getsockname()[1]
        self._url = TritonUrl.from_url(f"http://127.0.0.1:{port}{path}")
        pool = ConnectionPool(self._url, limit, None)
        pool.writer = RequestWriter(self._url)
        return pool

    async def _talk(self, reader, writer):
        self.connections += 1
        self._writers.append(writer)
        while self.answers and (request := await reader.read(65536)):
            self.requests.append(request)
            for piece in self.answers.pop(0):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
            if self._hang_up:
                break
        writer.close()


def in_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))

    return run


async def ask(pool, body=b"", timeout_s=math.inf, **headers):
    head = pool.writer.head(b"POST" if body else b"GET", "v2/x", headers, len(body))
    return await pool.exchange([head, body] if body else [head], timeout_s)


@in_loop
async def test_requests_are_complete_and_answers_are_found_again():
    async with Server([OK], [OK]) as server:
        pool = server.pool(path="/base")
        for body in (b"", b"body"):
            response = await ask(pool, body, name="value")
            assert (response.status, response.body) == (200, b"ok")
            assert response.headers.get("content-LENGTH") == "2"
            assert response.headers.get("other") is None
        await pool.close()
    assert server.connections == 1
    for request, method, body in zip(server.requests, [b"GET", b"POST"], [b"", b"body"], strict=True):
        head, _, sent = request.partition(b"\r\n\r\n")
        assert head.startswith(method + b" /base/v2/x HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nname: value\r\n" in head
        assert head.endswith(b"\r\nContent-Length: %d" % len(body))
        assert sent == body


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ([OK[:10], OK[10:30], OK[30:-1], OK[-1:]], b"ok"),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nok\r\n", b"3\r\n, y\r\n0\r\n\r\n"],
            b"ok, y",
        ),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", OK], b"ok"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b""),
        (
            [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"a" * 1_000_000, b"a" * 2_000_000],
            b"a" * 3_000_000,
        ),
    ],
    ids=["pieces", "chunked", "interim", "empty", "large"],
)
@in_loop
async def test_answers_of_all_shapes_are_read_to_their_end(pieces, body):
    async with Server(pieces, [OK]) as server:
        pool = server.pool()
        assert (await ask(pool)).body == body
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 1


@in_loop
async def test_a_request_that_is_answered_before_it_is_read_arrives_whole_and_so_does_the_next_one():
    large, read = bytes(range(256)) * 50_000, []

    async def talk(reader, writer):
        for answers_first in (True, False):
            head = await reader.readuntil(b"\r\n\r\n")
            if answers_first:
                writer.write(OK)
            read.append(await reader.readexactly(int(head.rpartition(b": ")[2])))
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = TritonUrl.from_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        pool = ConnectionPool(url, 1, None)
        pool.writer = RequestWriter(url)
        for body in (large, large[::-1]):
            assert (await ask(pool, body)).body == b"ok"
        await pool.close()
    assert read == [large, large[::-1]]


@in_loop
async def test_a_large_request_to_a_server_that_has_gone_fails_once_and_without_warnings(caplog):
    async with Server([OK]) as server:
        pool = server.pool()
        await ask(pool)
        (connection,) = pool._open
        await until(lambda: server.connections)
        held = connection._transport.get_extra_info("socket")
        held.shutdown(socket.SHUT_WR)  # what is sent from now on fails at once, before the loop knows of an end
        with pytest.raises(ConnectionError):
            await ask(pool, b"a" * 20_000_000)
        assert not connection._unsent
        await pool.close()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize(
    "answer", [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK.replace(b"1.1", b"1.0")]
)
@in_loop
async def test_a_connection_that_the_server_gives_up_is_not_used_again(answer):
    async with Server([answer], [OK]) as server:
        pool = server.pool()
        for _ in range(2):
            assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 2


@in_loop
async def test_a_connection_that_the_server_closed_meanwhile_is_replaced():
    async with Server([OK], [OK], hang_up=True) as server:
        pool = server.pool()
        assert (await ask(pool)).body == b"ok"
        await until(lambda: not pool._open)
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 2


@pytest.mark.parametrize("pieces", [[OK, OK.replace(b"ok", b"no")], [OK + OK.replace(b"ok", b"no")]])
@in_loop
async def test_an_answer_that_nobody_asked_for_is_not_that_to_the_next_request(pieces):
    async with Server(pieces, [OK]) as server:
        pool = server.pool()
        assert (await ask(pool)).body == b"ok"
        await until(lambda: not pool._open)
        assert (await ask(pool)).body == b"ok"
        await pool.close()


@pytest.mark.parametrize("pieces", [[], [OK[:-1]], [b"SSH-2.0-OpenSSH\r\n"]], ids=["silent", "early", "other"])
@in_loop
async def test_a_connection_that_ends_early_or_speaks_otherwise_is_a_connection_error(pieces):
    async with Server(pieces, [OK], hang_up=True) as server:
        pool = server.pool()
        with pytest.raises(ConnectionError, match="the server"):
            await ask(pool)
        assert (await ask(pool)).body == b"ok"
        await pool.close()


@in_loop
async def test_requests_above_the_limit_wait_for_each_other():
    async with Server(*[[OK]] * 20) as server:
        pool = server.pool(limit=3)
        answers = await asyncio.gather(*(ask(pool) for _ in range(20)))
        assert [answer.body for answer in answers] == [b"ok"] * 20
        await pool.close()
    assert server.connections == 3


@in_loop
async def test_closing_ends_what_is_under_way():
    async with Server([b"HTTP/1.1 200 OK\r\n"]) as server:
        pool = server.pool()
        under_way = asyncio.ensure_future(ask(pool))
        await until(lambda: server.requests)
        await pool.close()
        with pytest.raises(ConnectionError):
            await under_way


@in_loop
async def test_a_cancelled_request_gives_its_place_and_its_connection_up():
    async with Server([b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        under_way = asyncio.ensure_future(ask(pool))
        await until(lambda: server.requests)
        under_way.cancel()
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 2


@in_loop
async def test_a_request_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next():
    async with Server([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        first, second, third = (asyncio.ensure_future(ask(pool)) for _ in range(3))
        await until(lambda: server.requests)
        second.cancel()
        first.cancel()
        assert (await third).body == b"ok"
        assert second.cancelled()
        await pool.close()


@in_loop
async def test_a_place_that_comes_to_a_request_as_it_is_cancelled_goes_to_the_next():
    async with Server([b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        first, second, third = (asyncio.ensure_future(ask(pool)) for _ in range(3))
        await until(lambda: server.requests)
        first.cancel()
        asyncio.get_running_loop().call_soon(second.cancel)  # when the first has ended, before the second runs again
        assert (await third).body == b"ok"
        assert second.cancelled()
        await pool.close()


@in_loop
async def test_a_request_without_an_answer_ends_in_time_and_with_it_the_connection():
    async with Server([b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        with pytest.raises(asyncio.TimeoutError):
            await ask(pool, timeout_s=1.0)  # enough for the server to read it
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 2


@in_loop
async def test_a_request_that_waits_for_a_connection_ends_in_time():
    async with Server([b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        first = asyncio.ensure_future(ask(pool))
        await until(lambda: server.requests)
        with pytest.raises(asyncio.TimeoutError):
            await ask(pool, timeout_s=0.05)
        first.cancel()
        assert (await ask(pool)).body == b"ok"
        await pool.close()


@pytest.mark.parametrize("earlier_s", [3600.0, 2.0, math.inf])
@in_loop
async def test_the_time_of_a_request_is_its_own_whatever_that_of_the_request_before_was(earlier_s):
    async with Server([OK], [b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        assert (await ask(pool, timeout_s=earlier_s)).body == b"ok"
        with pytest.raises(asyncio.TimeoutError):
            await ask(pool, timeout_s=0.1)
        await pool.close()


@in_loop
async def test_a_request_without_a_limit_outlives_the_time_of_the_request_before():
    async with Server([OK], [b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        assert (await ask(pool, timeout_s=2.0)).body == b"ok"
        (connection,) = pool._open
        unlimited = asyncio.ensure_future(ask(pool))
        await until(lambda: connection._timer is None)  # it has ended
        assert not unlimited.done()
        await pool.close()
        with pytest.raises(ConnectionError):
            await unlimited


@in_loop
async def test_closing_ends_requests_that_wait_for_a_connection():
    async with Server([b"HTTP/1.1 200 OK\r\n"], [OK]) as server:
        pool = server.pool(limit=1)
        requests = [asyncio.ensure_future(ask(pool)) for _ in range(3)]
        await until(lambda: server.requests)
        await pool.close()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ConnectionError] * 3
        await until(lambda: not pool._open)


def chunked(*pieces, head=b"200 OK"):
    """A response whose body comes in these pieces."""
    sent = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return [b"HTTP/1.1 %b\r\nTransfer-Encoding: chunked\r\n\r\n" % head, *sent, b"0\r\n\r\n"]


def stream(pool, timeout_s=math.inf):
    return pool.stream([pool.writer.head(b"GET", "v2/x", {}, 0)], timeout_s)


@in_loop
async def test_a_stream_has_the_body_in_pieces_and_then_the_response_and_its_connection_is_used_again():
    large = b"a" * 500_000
    async with Server(chunked(b"one", b"two", large), [OK]) as server:
        pool = server.pool()
        *pieces, response = [piece async for piece in stream(pool)]
        assert b"".join(pieces) == b"onetwo" + large
        assert (response.status, response.body) == (200, b"")
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 1


@in_loop
async def test_a_stream_that_is_refused_has_the_response_alone():
    async with Server(chunked(b"no", head=b"400 Bad Request"), [OK]) as server:
        pool = server.pool()
        (response,) = [piece async for piece in stream(pool)]
        assert (response.status, response.body) == (400, b"no")
        await pool.close()


@in_loop
async def test_a_stream_that_is_closed_early_ends_its_connection_and_gives_its_place_up():
    async with Server(chunked(b"one")[:-1], [OK]) as server:
        pool = server.pool(limit=1)
        pieces = stream(pool)
        assert await anext(pieces) == b"one"
        await pieces.aclose()
        assert (await ask(pool)).body == b"ok"
        await pool.close()
    assert server.connections == 2


@in_loop
async def test_a_stream_waits_no_longer_than_its_time_for_the_next_piece_and_as_long_as_its_reader_takes():
    async with Server(chunked(b"one")[:-1], [OK]) as server:
        pool = server.pool()
        pieces = stream(pool, timeout_s=2.0)
        assert await anext(pieces) == b"one"
        (connection,) = pool._open
        await until(lambda: connection._timer is None)  # the time of the first piece has ended
        with pytest.raises(asyncio.TimeoutError):
            await anext(pieces)
        assert (await ask(pool)).body == b"ok"
        await pool.close()


@in_loop
async def test_a_stream_whose_connection_ends_early_is_a_connection_error():
    async with Server(chunked(b"one")[:-1], hang_up=True) as server:
        pool = server.pool()
        pieces = stream(pool)
        assert await anext(pieces) == b"one"
        with pytest.raises(ConnectionError):
            await anext(pieces)
        await pool.close()


@in_loop
async def test_a_server_waits_for_a_reader_that_is_slower():
    count, piece = 100, b"a" * 2**17
    async with Server(chunked(*[piece] * count), [OK]) as server:
        pool = server.pool()
        pieces = stream(pool)
        first = await anext(pieces)
        (connection,) = pool._open
        await until(lambda: not connection._transport.is_reading())
        rest = [each async for each in pieces]
        assert len(first) + sum(map(len, rest[:-1])) == count * len(piece)
        await pool.close()
