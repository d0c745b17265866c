"""The client for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, TypeVar

from pytriton.client.aio_drive import AsyncTransport, drive_async
from pytriton.client.aio_transport import create_async_client, load_async_lib, open_async_transport
from pytriton.client.arguments import Parameters
from pytriton.client.base import BaseModelClient
from pytriton.client.codec import Arrays
from pytriton.client.flows import Flow
from pytriton.client.in_flight import CallsInFlight
from pytriton.client.url import TritonUrl
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["AsyncioClient", "AsyncioModelClient"]

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound="AsyncioClient")


class AsyncioClient(BaseModelClient):
    """What the clients of one model for asyncio have in common: everything but the inference."""

    def _open(self) -> None:
        self._transport = self._make_transport()
        self._in_flight = CallsInFlight()

    def _make_transport(self) -> AsyncTransport:
        return open_async_transport(self._url, self._lib, self._headers, self._tls, self._max_response_bytes)

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

        Calls that have not ended, and later ones, raise ``PyTritonClientClosedError``.
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
        return create_async_client(TritonUrl.from_url(url), network_timeout_s)

    async def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is live and ready, which needs all its models to be.

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
        return _Answer(lambda: self._run(self._session.model_config()))

    @property
    def is_batching_supported(self) -> Awaitable[bool]:
        """Whether the model's tensors have a batch axis, to be awaited; raises as :attr:`model_config`."""

        async def ask() -> bool:
            return (await self.model_config).max_batch_size > 0

        return _Answer(ask)

    async def load_model(self, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Have the server load the model, and return when it has; bounded by ``init_timeout_s``.

        Args:
            config: Configuration to use instead of the repository's, as JSON text. One without backend and tensors,
                such as ``{"max_batch_size": 16}``, is filled up from that of the model, if it is loaded.
            files: Path to content of files to use instead of the repository's; needs ``config``.

        Raises:
            PyTritonClientInferenceServerError: The server could not load it, or does not allow it.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.
            PyTritonClientClosedError: The client is closed.
        """
        await self._run(self._session.load_model(config, files))

    async def unload_model(self) -> None:
        """Have the server unload the model, which it may finish after this returned; raises as :meth:`load_model`."""
        await self._run(self._session.unload_model())

    async def _run(self, flow: Flow[T]) -> T:
        return await self._in_flight.run(drive_async(flow, self._transport))


class AsyncioModelClient(AsyncioClient):
    """Calls one model over HTTP or gRPC from an asyncio event loop, any number of calls at once.

    It may be made outside the loop that uses it, and be used in one loop after another. ``async with`` closes it; with
    ``lazy_init=False`` it also waits for the model. The arguments are those of :class:`BaseModelClient`::

        async with AsyncioModelClient("localhost", "classifier") as client:
            outputs = await asyncio.gather(*(client.infer_sample(image) for image in images))

    Cancelling a call ends it at once on this side; the server may go on working on it. A client that is not closed
    loses its connections when the event loop ends, or nobody refers to it any more.

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


class _Answer(Generic[T]):
    """Asks when it is awaited, each time: a property may be looked at without awaiting it.

    Args:
        ask: Starts the asking.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()
