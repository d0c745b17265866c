"""Connections of the app: headers that do not come, and headers that do not end."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn

from pytriton.rest import protocol
from pytriton.rest.protocol import HEAD_BYTES, AppProtocol

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
STALL_S = 0.05  # longer than the limit of these tests


LARGE = 2**25


async def echo(scope, receive, send):
    """Answers with the size of the body, which is read to its end; ``/large`` with many bytes."""
    if scope["path"] == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
        await send({"type": "http.response.body", "body": bytes(LARGE)})
        return
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": b"%d" % size})


@asynccontextmanager
async def connection():
    """Streams to a server with the protocol."""
    server = uvicorn.Server(uvicorn.Config(echo, "127.0.0.1", 0, http=AppProtocol, log_config=None, lifespan="off"))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    (listener,) = server.servers[0].sockets
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.shutdown()


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", STALL_S / 2)


@pytest.mark.parametrize("before", [b"", REQUEST[:20]])
@pytest.mark.usefixtures("short_limit")
def test_a_connection_whose_headers_do_not_come_is_closed(before):
    async def run():
        async with connection() as (reader, writer):
            writer.write(before)
            return await reader.read()

    assert asyncio.run(run()) == b""


@pytest.mark.usefixtures("short_limit")
def test_a_second_request_may_not_stall_either():
    async def run():
        async with connection() as (reader, writer):
            writer.write(REQUEST + b"12345" + REQUEST[:20])
            return await reader.read()

    assert asyncio.run(run()).endswith(b"\r\n\r\n5")


def test_a_slow_body_is_waited_for(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", limit_s := 1.0)

    async def run():
        async with connection() as (reader, writer):
            writer.write(REQUEST + b"1234")
            await asyncio.sleep(1.5 * limit_s)
            writer.write(b"5")
            return await reader.readuntil(b"5")

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("endless", [b"X-Long: ", b""])
def test_headers_that_do_not_end_are_refused(endless):
    async def run():
        async with connection() as (reader, writer):
            piece = endless + b"x" * 1000 if endless else b"X-Many: 1\r\n" * 100
            writer.write(b"GET / HTTP/1.1\r\n" + piece)
            answer = asyncio.ensure_future(reader.readuntil(b"bytes"))
            for _ in range(4 * HEAD_BYTES // 1000):
                if answer.done() or writer.is_closing():
                    break
                writer.write(b"x" * 1000 if endless else piece)
                await asyncio.sleep(0)
            return await answer

    answer = asyncio.run(run())
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"the headers are longer than 65536 bytes")


def test_large_bodies_are_no_headers():
    async def run():
        async with connection() as (reader, writer):
            size = 4 * HEAD_BYTES
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            return await reader.readuntil(b"\r\n\r\n")

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("is_read", [True, False])
def test_an_answer_that_is_not_read_ends_its_connection(monkeypatch, is_read):
    timers = []

    class Loop:
        """Calls later when the test says so."""

        def __init__(self, loop):
            self._loop = loop

        def __getattr__(self, name):
            return getattr(self._loop, name)

        def call_later(self, delay_s, callback, *args):
            timer = self._loop.call_later(delay_s, callback, *args)
            if delay_s == protocol.UNREAD_TIMEOUT_S:
                timers.append((timer, callback))
            return timer

    class Watched(AppProtocol):
        def connection_made(self, transport):
            self.loop = Loop(self.loop)
            super().connection_made(transport)

    monkeypatch.setitem(globals(), "AppProtocol", Watched)
    monkeypatch.setattr(protocol, "UNREAD_TIMEOUT_S", 3600.5)

    async def run():
        async with connection() as (reader, writer):
            writer.write(REQUEST.replace(b"POST /", b"GET /large").replace(b"5", b"0"))
            while not timers:
                await asyncio.sleep(0)
            ((timer, callback),) = timers
            if is_read:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(LARGE)
                assert timer.cancelled()
                return LARGE
            callback()
            with suppress(ConnectionResetError):
                return len(await reader.read())
            return 0

    assert (asyncio.run(run()) == LARGE) == is_read
