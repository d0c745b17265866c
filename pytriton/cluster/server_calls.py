"""The server's side of calls of models by remote workers: it makes them as callables of this process would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from typing import Any

from pytriton.client.exceptions import PyTritonClientServerUnavailableError
from pytriton.client.threads import LoopThread
from pytriton.cluster.broker import Broker
from pytriton.cluster.calls import STREAM, call_of, error_frame, result_frame
from pytriton.cluster.messages import Parts, encode
from pytriton.composition.connector import Connector
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.wire.control import ANSWER
from pytriton.wire.frames import CANCEL, END, RELEASE, REQUEST, Frame
from pytriton.wire.tensors import FrameError, Tensor

__all__ = ["CallsOfWorker", "ServerCalls"]

MOST_CALLS = 256  # of a worker at a time; further ones wait
MOST_UNTAKEN = 16  # responses of a stream that are on their way
GONE = PyTritonClientServerUnavailableError("the model whose callable calls goes, or the server stops")


class ServerCalls:
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
        """End the loop, when all workers have left."""
        if self._loop is not None:
            self._loop.stop()
            self._loop.join()


class CallsOfWorker:
    """The calls of one worker that are not answered yet.

    Args:
        identity: Of the worker.
    """

    def __init__(self, server: ServerCalls, broker: Broker, identity: bytes) -> None:
        self._server, self._broker, self._identity = server, broker, identity
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._begun: dict[int, tuple[Future[None], asyncio.Semaphore]] = {}

    # On the broker's thread:

    def take(self, frame: Frame) -> None:
        """Make or cancel a call, or let a stream go on.

        Raises:
            FrameError: The frame is none of these.
        """
        number, begun = frame.number, self._begun.get(frame.number)
        if frame.kind == REQUEST and begun is None:
            untaken = asyncio.Semaphore(MOST_UNTAKEN)
            self._begun[number] = self._server.start(self._answer(frame, untaken)), untaken
        elif frame.kind not in (CANCEL, RELEASE):
            raise FrameError(f"a frame of kind {frame.kind} with number {number} is no call, or has come twice")
        elif begun is not None and frame.kind == RELEASE:
            self._server.start(_release(begun[1]))
        elif begun is not None:
            begun[0].cancel()
            del self._begun[number]

    def end(self) -> None:
        """Cancel all calls; the worker learns why."""
        for number, (task, _) in [*self._begun.items()]:
            task.cancel()
            self._forward(number, encode(error_frame(number, GONE), []), is_last=True)

    def _forward(self, number: int, parts: Parts, is_last: bool) -> None:
        if number in self._begun:
            self._broker.router.send(self._identity, [ANSWER, *parts])
            if is_last:
                del self._begun[number]

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
