"""The server's side of calls of models by remote workers: it makes them as callables of this process would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from pytriton.client.exceptions import PyTritonClientQueueFullError, PyTritonClientServerUnavailableError
from pytriton.client.threads import LoopThread
from pytriton.cluster.broker import Broker
from pytriton.cluster.calls import STREAM, call_of, error_frame, result_frame
from pytriton.cluster.messages import Parts, encode
from pytriton.composition.connector import Connector
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.wire.control import RESULT
from pytriton.wire.frames import CANCEL, END, RELEASE, REQUEST, Frame
from pytriton.wire.tensors import FrameError, Tensor

__all__ = ["CallServer", "PendingCalls"]

MAX_CALLS = 256  # of a worker at a time; further ones wait
TASK_BYTES = 4096
MAX_BYTES = 2**30  # of a worker's calls, also of those that wait; further ones are refused
MAX_UNTAKEN = 16  # responses of a stream that are on their way
TOO_LARGE = PyTritonClientQueueFullError(
    f"this worker's calls that are not answered yet would take more than {MAX_BYTES >> 20} MiB; make fewer at a time"
)
GONE = PyTritonClientServerUnavailableError("the model whose callable calls goes, or the server stops")


class CallServer:
    """What the calls of a model's workers share: an event loop, and connections to the server.

    Args:
        connector: As that of :class:`pytriton.composition.connections.Connections`.
    """

    def __init__(self, connector: Callable[[], Connector | None] | None) -> None:
        self._connector = connector
        self._loop: LoopThread | None = None
        self._transports: dict[bool, Any] = {}

    def connector(self) -> Connector | None:
        """What makes connections to the server; None if it has gone, or its address is not known."""
        return None if self._connector is None else self._connector()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine on the loop; cancelling the future cancels it. The broker's thread calls this."""
        if self._loop is None:
            self._loop = LoopThread("pytriton-calls-of-workers")
        return self._loop.submit(coroutine)

    def transport(self, *, streams: bool) -> Any:
        """What calls the server, on the loop.

        Raises:
            PyTritonInvalidOperationError: The server has gone, or has no endpoint for that.
        """
        if streams not in self._transports:
            connector = self.connector()
            if connector is None:
                raise PyTritonInvalidOperationError("the server has gone")
            self._transports[streams] = connector.async_transport(streams=streams)
        return self._transports[streams]

    def close(self) -> None:
        """Close the connections and end the loop, when all workers have left."""
        if self._loop is not None:
            self._loop.submit(self._close_transports()).result()
            self._loop.stop()
            self._loop.join()

    async def _close_transports(self) -> None:
        for transport in self._transports.values():
            await transport.close()


class _Begun(NamedTuple):
    """A call that is not answered yet."""

    task: Future[None]
    untaken: asyncio.Semaphore
    size: int  # in bytes, of its frame and its task


class PendingCalls:
    """The calls of one worker that are not answered yet.

    Args:
        identity: Of the worker.
    """

    def __init__(self, server: CallServer, broker: Broker, identity: bytes) -> None:
        self._server, self._broker, self._identity = server, broker, identity
        self._room = asyncio.Semaphore(MAX_CALLS)
        self._begun: dict[int, _Begun] = {}
        self._size = 0  # of all of them

    # On the broker's thread:

    def take(self, frame: Frame) -> None:
        """Make or cancel a call, or let a stream go on.

        Raises:
            FrameError: The frame is none of these.
        """
        begun = self._begun.get(frame.number)
        if frame.kind == REQUEST and begun is None:
            self._begin(frame)
        elif frame.kind not in (CANCEL, RELEASE):
            raise FrameError(f"a frame of kind {frame.kind} with number {frame.number} is no call, or has come twice")
        elif begun is not None and frame.kind == RELEASE:
            self._server.start(_release(begun.untaken))
        elif begun is not None:
            begun.task.cancel()
            self._forget(frame.number)

    def _begin(self, frame: Frame) -> None:
        size = TASK_BYTES + len(frame.metadata) + frame.data_bytes
        if self._begun and self._size + size > MAX_BYTES:
            return self._tell(error_frame(frame.number, TOO_LARGE))
        untaken = asyncio.Semaphore(MAX_UNTAKEN)
        self._begun[frame.number] = _Begun(self._server.start(self._answer(frame, untaken)), untaken, size)
        self._size += size

    def _forget(self, number: int) -> None:
        self._size -= self._begun.pop(number).size

    def end(self) -> None:
        """Cancel all calls; the worker learns why."""
        for number, begun in [*self._begun.items()]:
            begun.task.cancel()
            self._tell(error_frame(number, GONE))
            self._forget(number)

    def _tell(self, frame: Frame) -> None:
        self._send_parts(encode(frame, []))

    def _forward(self, number: int, parts: Parts, is_last: bool) -> None:
        if number in self._begun:
            self._send_parts(parts)
            if is_last:
                self._forget(number)

    def _send_parts(self, parts: Parts) -> None:
        self._broker.router.send(self._identity, [RESULT, *parts])

    # On the loop:

    async def _answer(self, frame: Frame, untaken: asyncio.Semaphore) -> None:
        async with self._room:
            try:
                await self._call(frame, untaken)
            except Exception as error:
                self._send(error_frame(frame.number, error), [])

    async def _call(self, frame: Frame, untaken: asyncio.Semaphore) -> None:
        call = call_of(frame)
        transport = self._server.transport(streams=call.method == STREAM)
        if call.method != STREAM:
            return self._send(*result_frame(frame.number, call, await transport.call(call)))
        async with aclosing(transport.stream(call)) as responses:
            async for response in responses:
                await untaken.acquire()
                self._send(*result_frame(frame.number, call, response))
        self._send(Frame(END, frame.number, 1), [])

    def _send(self, frame: Frame, tensors: list[Tensor]) -> None:
        self._broker.call(partial(self._forward, frame.number, encode(frame, tensors), is_last=not frame.more))


async def _release(untaken: asyncio.Semaphore) -> None:
    untaken.release()
