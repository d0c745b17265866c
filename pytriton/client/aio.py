"""The clients for asyncio: :class:`AsyncioModelClient`, and :class:`AsyncioDecoupledModelClient` for streams."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, Parameters
from pytriton.client.auth import Tls
from pytriton.client.base import BaseModelClient
from pytriton.client.codec import Arrays
from pytriton.client.conversations import AsyncTransport, Conversation, drive_async
from pytriton.client.exceptions import PyTritonClientClosedError
from pytriton.client.grpc_protocol import GrpcProtocol
from pytriton.client.grpc_transports import AsyncGrpcTransport
from pytriton.client.http_protocol import HttpProtocol
from pytriton.client.http_transports import AsyncHttpTransport
from pytriton.client.sync import check_streams
from pytriton.client.tritonclients import bare_client, load_async_lib
from pytriton.client.url import TritonUrl
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["AsyncioClient", "AsyncioDecoupledModelClient", "AsyncioModelClient", "open_async_transport"]

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound="AsyncioClient")


def open_async_transport(
    url: TritonUrl,
    headers: Mapping[str, str],
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> AsyncHttpTransport | AsyncGrpcTransport:
    """A transport that connects at its first call; it can be made outside event loops. The caller closes it.

    Arguments are those of :func:`~pytriton.client.sync.open_transport`.
    """
    if url.scheme == "grpc":
        protocol = GrpcProtocol(url.with_scheme, headers, secured=tls is not None)
        return AsyncGrpcTransport(protocol, url, tls, max_response_bytes)
    context = tls.context() if tls else None
    return AsyncHttpTransport(HttpProtocol(url, headers, secured=tls is not None), url, context, max_response_bytes)


class AsyncioClient(BaseModelClient):
    """The base of the clients for asyncio: everything but the inference."""

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

    def get_lib(self) -> Any:
        """``tritonclient.http.aio`` or ``tritonclient.grpc.aio``, for the URL's scheme."""
        return load_async_lib(self._url.scheme)

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """A bare tritonclient client for asyncio, made within an event loop; the caller closes it.

        Args:
            url: Server, as :meth:`TritonUrl.from_url` reads it.
            network_timeout_s: For HTTP, bounds every call; None is tritonclient's default of 60.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.

        Warns:
            NotSupportedTimeoutWarning: A timeout was given for gRPC, where only single calls have one.
        """
        parsed = TritonUrl.from_url(url)
        return bare_client(load_async_lib(parsed.scheme), parsed, network_timeout_s)

    async def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is live, and ready with all its models.

        Raises:
            PyTritonClientTimeoutError: It was not within ``timeout_s`` seconds.
            PyTritonClientClosedError: The client is closed.
        """
        await self._run(self._session.wait_for_server(timeout_s))

    async def wait_for_model(self, timeout_s: float) -> None:
        """Wait until the model can serve.

        Raises:
            PyTritonClientModelUnavailableError: The server was reached, but had no such model within ``timeout_s``.
            PyTritonClientTimeoutError: The model was not ready within ``timeout_s`` seconds.
            PyTritonClientClosedError: The client is closed.
        """
        await self._run(self._session.wait_for_model(timeout_s))

    @property
    def model_config(self) -> Awaitable[TritonModelConfig]:
        """The model's configuration, to be awaited; waits for the model and fetches it at first use.

        Awaiting it raises:
            PyTritonClientModelUnavailableError: The server has no such model.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.
            PyTritonClientClosedError: The client is closed.
        """
        return _Awaitable(lambda: self._run(self._session.model_config()))

    @property
    def is_batching_supported(self) -> Awaitable[bool]:
        """Whether the model's tensors have a batch axis, to be awaited; raises as :attr:`model_config`."""

        async def ask() -> bool:
            return (await self.model_config).max_batch_size > 0

        return _Awaitable(ask)

    async def load_model(self, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Have the server load the model, and return when it has; bounded by ``init_timeout_s``.

        Args:
            config: Configuration to use instead of the repository's, as JSON text. If it has no backend and tensors,
                such as ``{"max_batch_size": 16}``, it is completed from that of the loaded model.
            files: Path to content of files to use instead of the repository's; needs ``config``.

        Raises:
            PyTritonClientInferenceServerError: The server could not load it, or does not allow it.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.
            PyTritonClientClosedError: The client is closed.
        """
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
        before = _cancellations(task)
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


def _cancellations(task: asyncio.Task[Any]) -> int:
    return task.cancelling() if sys.version_info >= (3, 11) else 0


class _Awaitable(Generic[T]):
    """Calls a coroutine function whenever it is awaited: a property can be read without awaiting it.

    Args:
        ask: The coroutine function.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()
