"""Calls of models by the callable of a remote worker: they travel over its connection, and so do their answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientTimeoutError,
)
from pytriton.client.http_transports import CHECK_S, pause
from pytriton.client.threads import LoopThread
from pytriton.client.transport import time_limit
from pytriton.cluster.calls import answer_of, request_frame
from pytriton.cluster.channel import RemoteChannel
from pytriton.cluster.messages import LAST_NUMBER
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import CANCEL, RELEASE, Frame
from pytriton.wire.tensors import Tensor

__all__ = ["AsyncWorkerTransport", "CallClient", "WorkerConnector", "WorkerTransport"]

Responses = AsyncGenerator[Any, None]


class CallClient:
    """The calls of one worker, on an event loop of their own.

    The thread that receives batches may be the one that waits for an answer, so the loop receives too while there are
    calls.
    """

    def __init__(self) -> None:
        self._loop = LoopThread("pytriton-worker-calls")
        self._process = os.getpid()
        self._channel: RemoteChannel | None = None
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Queue[Frame | None]] = {}

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine on the loop; cancelling the future cancels it.

        Raises:
            PyTritonClientClosedError: This process was forked from the worker's.
        """
        if os.getpid() != self._process:
            coroutine.close()
            raise PyTritonClientClosedError("a process that was forked from a remote worker cannot call models")
        return self._loop.submit(coroutine)

    def join(self, channel: RemoteChannel) -> None:
        """Make calls over a connection, until :meth:`leave`."""
        channel.on_answer = lambda frame: self._loop.submit(self._take(frame))
        self._channel = channel

    async def _take(self, frame: Frame) -> None:
        if frame.number in self._answers:
            self._answers[frame.number].put_nowait(frame)

    def leave(self) -> None:
        """Fail all calls, because the connection is lost."""
        self.submit(self._fail()).result()

    def close(self) -> None:
        """End the loop."""
        self._loop.stop()
        self._loop.join()

    # On the loop:

    async def _fail(self) -> None:
        self._listen(False)
        self._channel = None
        for answers in self._answers.values():
            answers.put_nowait(None)

    def _listen(self, begin: bool) -> None:
        loop, channel = asyncio.get_running_loop(), self._channel
        if channel is None or begin == channel.awaits_answers:
            return
        channel.awaits_answers = begin
        for descriptor in channel.descriptors:
            if begin:
                loop.add_reader(descriptor, self._read, channel)
            else:
                loop.remove_reader(descriptor)

    def _read(self, channel: RemoteChannel) -> None:
        try:
            channel.read_ahead()
        except PeerGoneError:  # which the worker notices too
            self._loop.start(self._fail)

    async def responses(self, call: Call) -> Responses:
        """Make a call; yields its result, or the responses of a stream. Its timeout bounds the wait for each.

        Raises:
            PyTritonClientError: That of the call, or the connection was lost.
        """
        number, more = next(self._numbers) & LAST_NUMBER, True
        answers = self._answers[number] = asyncio.Queue()
        try:
            self._listen(True)
            self._send(*request_frame(number, call))
            while more:
                frame = await _in_time(call, answers.get())
                if frame is None:
                    raise PyTritonClientConnectionError("the connection to the server's side was lost")
                more = frame.more
                if (answer := answer_of(frame)) is not None:
                    yield answer
                if more:
                    self._send(Frame(RELEASE, number, 1), [])
        finally:
            del self._answers[number]
            if more:
                with suppress(PyTritonClientConnectionError):  # which cancels it too
                    self._send(Frame(CANCEL, number, 1), [])
            if not self._answers:
                self._listen(False)

    def _send(self, frame: Frame, tensors: list[Tensor]) -> None:
        try:
            if self._channel is None:
                raise PeerGoneError("this worker has not joined it")
            self._channel.send_call(frame, tensors)
        except PeerGoneError as error:
            raise PyTritonClientConnectionError(f"the server's side cannot be reached: {error}") from error


async def _in_time(call: Call, answer: Coroutine[Any, Any, Any]) -> Any:
    try:
        async with time_limit(call.timeout_s):
            return await answer
    except asyncio.TimeoutError:  # in Python 3.10 it is not the built-in TimeoutError
        raise PyTritonClientTimeoutError(
            f"the server did not answer {call.method} within {call.timeout_s:g} s; it may still be working on it"
        ) from None


async def _next(responses: Responses) -> Any:
    return await anext(responses, None)


async def _close(responses: Responses) -> None:
    await responses.aclose()


async def _only(responses: Responses) -> Any:
    async with aclosing(responses):
        return await anext(responses)


class WorkerTransport:
    """Calls models from one thread at a time.

    Attributes:
        check: As that of :class:`pytriton.client.http_transports.HttpTransport`.
    """

    check: Callable[[], None] | None = None

    def __init__(self, calls: CallClient) -> None:
        self._calls = calls

    def call(self, call: Call) -> Any:
        """Perform one call."""
        return self.wait(_only(self._calls.responses(call)))

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, which is cancelled if ``check`` raises."""
        future = self._calls.submit(coroutine)
        try:
            while True:
                try:
                    return future.result(CHECK_S)
                except FutureTimeoutError:
                    if future.done():  # also with an error of this class
                        return future.result()
                if self.check is not None:
                    self.check()
        finally:
            future.cancel()

    def stream(self, call: Call) -> WorkerStream:
        """Send a request at the first ``next`` of the result, which gives its responses one by one."""
        return WorkerStream(self, self._calls.responses(call))

    def sleep(self, seconds: float) -> None:
        """Pause; what the check raises ends that."""
        pause(seconds, self.check)

    def close(self) -> None:
        """Do nothing: the connection is the worker's."""


class WorkerStream:
    """The responses to one request."""

    def __init__(self, transport: WorkerTransport, responses: Responses) -> None:
        self._transport, self._responses = transport, responses

    def next(self) -> Any:
        """Wait for the next response; None at the end."""
        return self._transport.wait(_next(self._responses))

    def close(self) -> None:
        """Cancel the request, unless its last response has come."""
        self._transport.wait(_close(self._responses))


class AsyncWorkerTransport:
    """Calls models from coroutines of any loop, any number at once."""

    def __init__(self, calls: CallClient) -> None:
        self._calls = calls

    async def call(self, call: Call) -> Any:
        """Perform one call."""
        return await asyncio.wrap_future(self._calls.submit(_only(self._calls.responses(call))))

    async def stream(self, call: Call) -> Responses:
        """Send a request, and yield the responses."""
        responses = self._calls.responses(call)
        try:
            while (response := await asyncio.wrap_future(self._calls.submit(_next(responses)))) is not None:
                yield response
        finally:
            self._calls.submit(_close(responses))

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Do nothing: the connection is the worker's."""


class WorkerConnector:
    """How the callable of a remote worker reaches the server, as ``pytriton.composition.connector.Connector``."""

    def __init__(self, secret: str, calls: CallClient) -> None:
        self.secret = secret
        self._calls = calls

    def transport(self, *, streams: bool = False) -> WorkerTransport:
        """What calls the server from one thread at a time."""
        return WorkerTransport(self._calls)

    def async_transport(self, *, streams: bool = False) -> AsyncWorkerTransport:
        """What calls the server from event loops."""
        return AsyncWorkerTransport(self._calls)

    def for_processes(self) -> None:
        """None: the connection is that of this process."""
