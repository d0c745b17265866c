"""Streams of results: server-sent events, and lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from pytriton.rest.bodies import SSE, ClientDisconnectedError, Receive
from pytriton.rest.errors import RestError

__all__ = ["cancelled_on_disconnect", "send_stream"]

Send = Callable[[Any], Awaitable[None]]

LOOK_AFTER_S = 0.02
"""A request that takes longer is watched for a disconnect; for shorter ones the watching would cost more."""


class cancelled_on_disconnect:
    """Cancel what the block waits for when the client goes away: an asynchronous context manager.

    Args:
        receive: Of ASGI; the body has been read.

    Raises:
        ClientDisconnectedError: It went away.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._gone = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._begin)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        try:
            if self._gone and kind is None:
                await asyncio.sleep(0)  # where the cancellation arrives, if the block has just ended
        except asyncio.CancelledError:
            kind = asyncio.CancelledError
        finally:
            if self._watcher is not None:
                self._watcher.cancel()
        if self._gone and (kind is None or issubclass(kind, asyncio.CancelledError)):
            if hasattr(self._task, "uncancel"):
                self._task.uncancel()
            raise ClientDisconnectedError

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await disconnected(self._receive)
        self._gone = True
        self._task.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_stream(
    results: AsyncGenerator[bytes, None], media_type: str, receive: Receive, send: Send, heartbeat_s: float
) -> None:
    """Answer a request with a stream. Nothing is sent before the first result, or for ``heartbeat_s``.

    Args:
        results: Texts of JSON. They are closed in any case.
        media_type: Server-sent events or lines of JSON.
        receive: Of ASGI.
        send: Of ASGI.
        heartbeat_s: Longest silence of server-sent events.

    Raises:
        RestError: There was an error before the first result.
        ClientDisconnectedError: The client went away.
    """
    is_sse = media_type == SSE
    gone: asyncio.Future[Any] = asyncio.ensure_future(disconnected(receive))
    pending: asyncio.Future[Any] = asyncio.ensure_future(anext(results, None))
    started = False
    try:
        while True:
            await asyncio.wait((pending, gone), timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnectedError
            is_end = False
            if not pending.done():
                text = b": heartbeat\n\n" if is_sse else b""
            else:
                try:
                    result = pending.result()
                except RestError as error:
                    if not started:
                        raise
                    text, is_end = _error(error, is_sse), True
                else:
                    text, is_end = _item(result, is_sse), result is None
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": _headers(media_type)})
            if text or is_end:
                await send({"type": "http.response.body", "body": text, "more_body": not is_end})
            if is_end:
                return
            if pending.done():
                pending = asyncio.ensure_future(anext(results, None))
    finally:
        gone.cancel()
        pending.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await pending
        await results.aclose()


def _headers(media_type: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", f"{media_type}; charset=utf-8".encode() if media_type == SSE else media_type.encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would collect the answers
    ]


def _item(result: bytes | None, is_sse: bool) -> bytes:
    if result is None:
        return b"event: end\ndata: {}\n\n" if is_sse else b""
    return b"data: %b\n\n" % result if is_sse else result + b"\n"


def _error(error: RestError, is_sse: bool) -> bytes:
    return b"event: error\ndata: %b\n\n" % error.encoded() if is_sse else error.encoded() + b"\n"
