"""Waits of a request that end when its client goes away, or sends no more of it."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pytriton.introspection import cancellations_of
from pytriton.rest.errors import RestError

__all__ = ["CancelledOnDisconnect", "ClientDisconnectedError", "PieceLimit", "Receive"]

LOOK_AFTER_S = 0.02
"""A request that takes longer is watched for a disconnect; for shorter ones the watching would cost more."""

LEAST_BYTES_PER_S = 1024  # as the edge's http_least_bytes_per_second

Receive = Callable[[], Awaitable[Any]]


class ClientDisconnectedError(Exception):
    """The client went away; nobody reads an answer."""


class _Interruptible(ABC):
    """A block of the running task that a timer may interrupt: ``async with``."""

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._cancellations = cancellations_of(task)
        self._error: Exception | None = None
        self._timer = self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._error is None:
            return
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        if not is_cancelled:  # the block has just ended; the cancellation arrives at the next wait
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if sys.version_info >= (3, 11) and self._task.uncancel() > self._cancellations:
            raise asyncio.CancelledError  # others cancelled the task as well
        if kind is None or is_cancelled:
            raise self._error

    @abstractmethod
    def _begin(self) -> asyncio.TimerHandle:
        """Start the timer, which is cancelled at the end of the block."""

    def _interrupt(self, error: Exception) -> None:
        """Cancel what the block waits for, and raise the error at its end, unless the block raises another one."""
        self._error = error
        self._task.cancel()


class PieceLimit(_Interruptible):
    """Limits the wait for each piece of a body, and asks for a least rate: ``async with limit: ...``.

    One timer is for all pieces.

    Args:
        timeout_s: Longest wait; in each such time, 1 KiB/s have to come on average.

    Raises:
        RestError: At the end of the block, if a piece, or enough of them, did not come in time.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def _begin(self) -> asyncio.TimerHandle:
        self._bytes = 0  # since the time began that ends at _window_end
        self._end = self._window_end = self._loop.time() + self._timeout_s
        return self._loop.call_at(self._end, self._look)

    def received(self, count: int) -> None:
        """A piece of so many bytes has come."""
        self._bytes += count
        self._end = self._loop.time() + self._timeout_s

    def _look(self) -> None:
        now, least = self._loop.time(), int(LEAST_BYTES_PER_S * self._timeout_s)
        if self._end <= now:
            self._refuse(f"no more of the body came within {self._timeout_s:g} s")
        elif self._window_end <= now and self._bytes < least:
            came = f"{self._bytes} bytes in {self._timeout_s:g} s"
            self._refuse(f"the body came too slowly: {came}; send at least {least}")
        else:
            if self._window_end <= now:
                self._bytes, self._window_end = 0, now + self._timeout_s
            self._timer = self._loop.call_at(min(self._end, self._window_end), self._look)

    def _refuse(self, text: str) -> None:
        self._interrupt(RestError(408, "REQUEST_TIMEOUT", text, headers={"Connection": "close"}))


class CancelledOnDisconnect(_Interruptible):
    """Cancels what a block waits for when the client goes away: ``async with CancelledOnDisconnect(receive): ...``.

    Args:
        receive: Of ASGI; the body has been read.

    Raises:
        ClientDisconnectedError: At the end of the block, if the client went away.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        await super().__aexit__(kind, *rest)

    def _begin(self) -> asyncio.TimerHandle:
        return self._loop.call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._interrupt(ClientDisconnectedError())
