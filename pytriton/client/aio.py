"""The clients for asyncio: :class:`AsyncioModelClient`, and :class:`AsyncioDecoupledModelClient` for streams."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, Parameters
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.codec import Arrays, Codec
from pytriton.client.conversations import AsyncTransport, Call, Conversation, Shared, Sleep
from pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientError
from pytriton.client.grpc_transports import AsyncGrpcTransport
from pytriton.client.http_transports import AsyncHttpTransport
from pytriton.client.session import BaseModelClient
from pytriton.client.sync import check_streams
from pytriton.client.tritonclients import load_async_lib
from pytriton.introspection import cancellations_of
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "AsyncioClient",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "drive_async",
    "open_async_transport",
]

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound="AsyncioClient")


async def drive_async(conversation: Conversation[T], transport: AsyncTransport) -> T:
    """Run a conversation to its end and return its result."""
    try:
        step = next(conversation)
        while True:
            try:
                answer = None
                if isinstance(step, Call):
                    answer = await transport.call(step)
                elif isinstance(step, Sleep):
                    await transport.sleep(step.seconds)
                else:
                    answer = await _join(step, transport)
            except PyTritonClientError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


@dataclass
class _SharedRun:
    """The task of a shared conversation, and how many other tasks wait for it."""

    task: asyncio.Task[Any]
    waiting: int = 0


async def _join(step: Shared, transport: AsyncTransport) -> Any:
    run, loop = step.running, asyncio.get_running_loop()
    if run is None or run.task.done() or run.task.get_loop() is not loop:
        run = step.running = _SharedRun(loop.create_task(drive_async(step.start(), transport)))
    run.waiting += 1
    try:
        # Cancelling one waiting task does not cancel the others ...
        return await asyncio.shield(run.task)
    finally:
        run.waiting -= 1
        if not run.waiting:
            # ... but the run ends when no task waits for it.
            run.task.cancel()
            if step.running is run:
                step.running = None


def open_async_transport(
    url: TritonUrl,
    headers: Mapping[str, str],
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> AsyncHttpTransport | AsyncGrpcTransport:
    """As :func:`~pytriton.client.sync.open_transport`, for asyncio; it can be made outside event loops."""
    kind = AsyncGrpcTransport if url.scheme == "grpc" else AsyncHttpTransport
    return kind(url, headers, tls, max_response_bytes)


class AsyncioClient(BaseModelClient):
    """The base of the clients for asyncio: everything but the inference."""

    _load_lib = staticmethod(load_async_lib)

    def _open(self) -> None:
        self._transport = self._make_transport()
        self._in_flight = _CallsInFlight()

    def _make_transport(self) -> AsyncTransport:
        return open_async_transport(self._url, self._headers, self._tls, self._max_response_bytes)

    async def __aenter__(self: ClientT) -> ClientT:
        """Wait for the model, if the client was made with ``lazy_init=False``.

        Raises:
            PyTritonClientModelUnavailableError: The server has no such model.
            PyTritonClientTimeoutError: The model was not ready within ``init_timeout_s``.
            PyTritonClientClosedError: The client is closed.
        """
        if not self._lazy_init:
            try:
                await self._run(self._session.start())
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. May be called twice.

        Calls under way and later calls raise ``PyTritonClientClosedError``.
        """
        self._session.close()
        self._in_flight.interrupt()
        await self._transport.close()

    async def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is live, and ready with all its models; as :meth:`ModelClient.wait_for_server`."""
        await self._run(self._session.wait_for_server(timeout_s))

    async def wait_for_model(self, timeout_s: float) -> None:
        """Wait until the model can serve; errors are those of :meth:`ModelClient.wait_for_model`."""
        await self._run(self._session.wait_for_model(timeout_s))

    @property
    def model_config(self) -> Awaitable[TritonModelConfig]:
        """The model's configuration, to be awaited; waits for the model and fetches it at first use.

        Awaiting it raises the errors of :attr:`ModelClient.model_config`.
        """
        return _Awaitable(lambda: self._run(self._session.model_config()))

    @property
    def is_batching_supported(self) -> Awaitable[bool]:
        """Whether the model's tensors have a batch axis, to be awaited; raises as :attr:`model_config`."""

        async def ask() -> bool:
            return (await self.model_config).max_batch_size > 0

        return _Awaitable(ask)

    async def load_model(self, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Have the server load the model, and return when it has; as :meth:`ModelClient.load_model`."""
        await self._run(self._session.load_model(config, files))

    async def unload_model(self) -> None:
        """Have the server unload the model, which may end after this returns; raises as :meth:`load_model`."""
        await self._run(self._session.unload_model())

    async def _run(self, conversation: Conversation[T]) -> T:
        return await self._in_flight.run(drive_async(conversation, self._transport))


class AsyncioModelClient(AsyncioClient):
    """Calls one model over HTTP or gRPC from an asyncio event loop, any number of calls at once.

    It may be made outside the loop that uses it, and be used in one loop after another. ``async with`` closes it; with
    ``lazy_init=False`` it also waits for the model. The arguments are those of :class:`BaseModelClient`::

        async with AsyncioModelClient("localhost", "classifier") as client:
            outputs = await asyncio.gather(*(client.infer_sample(image) for image in images))

    Cancelling a call ends it at once on this side; the server may go on working on it. The event loop closes the
    connections of a client that the program has not closed, when the loop ends or the client is garbage.

    Raises:
        PyTritonClientValueError: An argument is wrong; :class:`PyTritonClientInvalidUrlError` for the URL.
    """

    async def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Arrays:
        """Infer one sample; arguments, result and errors are those of :meth:`ModelClient.infer_sample`.

        First calls that start at the same time wait for the model together, for ``init_timeout_s`` from the first on.
        """
        return await self._run(
            self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=True))
        )

    async def call(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Any:
        """Call a typed function; arguments, result and errors are those of :meth:`ModelClient.call`."""
        return await self._run(
            self._session.call(self._request(inputs, named_inputs, parameters, headers, sample=True))
        )

    async def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Arrays:
        """Infer a batch of samples; arguments, result and errors are those of :meth:`ModelClient.infer_batch`."""
        return await self._run(
            self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=False))
        )


class AsyncioDecoupledModelClient(AsyncioClient):
    """Calls one decoupled model over gRPC from an asyncio event loop: each request gets any number of responses.

    Any number of requests at once. ``async with`` closes it. The arguments are those of :class:`BaseModelClient`;
    ``inference_timeout_s`` bounds the wait for each response. ::

        async with AsyncioDecoupledModelClient("grpc://localhost", "teller") as client:
            async for words in client.infer_sample(prompt):
                print(words)

    Raises:
        PyTritonClientValueError: The URL is not of gRPC, or another argument is wrong.
    """

    _transport: AsyncGrpcTransport

    def _make_transport(self) -> AsyncTransport:
        check_streams(self._url.scheme)
        return super()._make_transport()

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Arrays, None]:
        """Stream the responses to one sample; nothing is sent before the iteration starts.

        Arguments, responses and errors are those of :meth:`DecoupledModelClient.infer_sample`; iterating raises the
        errors. To stop early, close it, as ``contextlib.aclosing`` does: that cancels the request. After a mere
        ``break`` the event loop closes it when it is garbage.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=True)

    async def call(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Any, None]:
        """Call a typed function that streams: its values, as they come.

        Arguments are those of :meth:`ModelClient.call`; errors, and how to stop early, those of :meth:`infer_sample`.
        """
        request = self._request(inputs, named_inputs, parameters, headers, sample=True)
        codec, call = await self._run(self._session.stream(request))
        async with aclosing(self._responses(codec, call, sample=True)) as responses:
            async for outputs in responses:
                yield codec.result(outputs)

    def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Arrays, None]:
        """Stream the responses to a batch of samples, as :meth:`infer_sample`; arrays have a batch axis.

        Raises:
            PyTritonClientModelDoesntSupportBatchingError: The model has no batch axis.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=False)

    async def _stream(
        self, inputs: Any, named_inputs: Any, parameters: Parameters, headers: Parameters, *, sample: bool
    ) -> AsyncGenerator[Arrays, None]:
        request = self._request(inputs, named_inputs, parameters, headers, sample=sample)
        codec, call = await self._run(self._session.stream(request))
        async with aclosing(self._responses(codec, call, sample)) as responses:
            async for outputs in responses:
                yield codec.with_texts(outputs) if request.options.text_outputs else outputs

    async def _responses(self, codec: Codec, call: Call, sample: bool) -> AsyncGenerator[Arrays, None]:
        async with aclosing(self._transport.stream(call)) as responses:
            while (response := await self._in_flight.run(anext(responses, None))) is not None:
                yield codec.decode(response, sample=sample)


class _CallsInFlight:
    """The tasks that wait for calls of a client, which closing the client interrupts."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for one call, in this task.

        Raises:
            PyTritonClientClosedError: It was interrupted.
        """
        task = asyncio.current_task()
        assert task is not None  # coroutines run in tasks
        before = cancellations_of(task)
        self._tasks.add(task)
        try:
            return await call
        except asyncio.CancelledError:
            if task not in self._interrupted:
                raise
            if sys.version_info >= (3, 11) and task.uncancel() > before:
                raise  # the program cancelled the task as well
            raise PyTritonClientClosedError("the client was closed before this call had ended") from None
        finally:
            self._tasks.discard(task)
            self._interrupted.discard(task)

    def interrupt(self) -> None:
        """End all calls with ``PyTritonClientClosedError``."""
        for task in self._tasks - self._interrupted:
            if not task.get_loop().is_closed():
                self._interrupted.add(task)
                task.cancel()


class _Awaitable(Generic[T]):
    """Calls a coroutine function whenever it is awaited: a property can be read without awaiting it."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()
