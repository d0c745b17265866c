"""Streams of results: server-sent events, and lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pytriton.rest.bodies import NDJSON, SSE
from pytriton.rest.errors import RestError
from pytriton.rest.waits import CancelledOnDisconnect, Receive

__all__ = ["EVENTS", "HEARTBEAT", "LINES", "Framing", "send_stream"]

Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Framing:
    """How the results of a stream become its body.

    Attributes:
        item: The bytes of a result.
        error: Those of the error that ends the stream.
        end: Those that end it without an error.
        heartbeat: Sent while there are no results; empty sends nothing.
    """

    media_type: str
    item: Callable[[bytes], bytes]
    error: Callable[[RestError], bytes]
    end: bytes = b""
    heartbeat: bytes = b""


HEARTBEAT = b": heartbeat\n\n"
LINES = Framing(NDJSON, lambda result: result + b"\n", lambda error: error.encoded() + b"\n")
EVENTS = Framing(
    SSE,
    lambda result: b"data: %b\n\n" % result,
    lambda error: b"event: error\ndata: %b\n\n" % error.encoded(),
    b"event: end\ndata: {}\n\n",
    HEARTBEAT,
)


async def send_stream(
    results: AsyncGenerator[bytes, None], framing: Framing, receive: Receive, send: Send, heartbeat_s: float
) -> None:
    """Answer a request with a stream. Nothing is sent before the first result, or the first heartbeat.

    Args:
        results: Texts of JSON. They are closed in any case.
        framing: Server-sent events or lines of JSON.
        heartbeat_s: Longest silence of server-sent events.

    Raises:
        RestError: There was an error before the first result.
        ClientDisconnectedError: The client went away.
    """
    body = _Body(framing, send, heartbeat_s)
    try:
        async with CancelledOnDisconnect(receive), aclosing(results):
            try:
                async for result in results:
                    await body.write(framing.item(result))
                await body.write(framing.end, more=False)
            except RestError as error:
                if not body.started:
                    raise
                await body.write(framing.error(error), more=False)
    finally:
        await body.close()


class _Body:
    """The body of a response that is sent in pieces, with heartbeats between them.

    Args:
        heartbeat_s: Longest silence.
    """

    def __init__(self, framing: Framing, send: Send, heartbeat_s: float) -> None:
        self.started = False
        self._framing = framing
        self._send = send
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        self._beating: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(heartbeat_s, self._look) if framing.heartbeat else None

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        """Send a piece of the body, and before the first one the head."""
        self._written = self._loop.time()
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _headers(self._framing)})
        if piece or not more:
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    def _look(self) -> None:
        silent_s = self._loop.time() - self._written
        if silent_s >= self._heartbeat_s:
            silent_s = 0.0
            if self._beating is None or self._beating.done():  # else the client does not read
                self._beating = self._loop.create_task(self.write(self._framing.heartbeat))
        self._timer = self._loop.call_later(self._heartbeat_s - silent_s, self._look)

    async def close(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)


def _headers(framing: Framing) -> list[tuple[bytes, bytes]]:
    kind = framing.media_type
    return [
        (b"content-type", f"{kind}; charset=utf-8".encode() if kind == SSE else kind.encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would collect the answers
    ]
