"""The client whose calls return futures.

Its engine is one event loop in a background thread. The alternative was measured beside it: threads with a synchronous
client each (2 cores, which also ran the server; 64 calls in flight; 16 and 128 workers; medians of 5 rounds). The loop
had 1.4 times the threads' throughput over HTTP and 1.1 times over gRPC for 16 float32, and 1.1 to 2.1 times for 1 MiB,
at 0.4 to 1.0 of their CPU time. It also needs no thread and no gRPC connection per worker, a hung server holds no
thread up, and calls are prepared, bounded and ended by the same code as those of the client for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from pytriton.client.aio_drive import AsyncTransport, drive_async
from pytriton.client.aio_transport import HTTP_CONNECTIONS, load_async_lib, open_async_transport
from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, Parameters
from pytriton.client.backlog import Backlog
from pytriton.client.base import BaseModelClient
from pytriton.client.codec import Arrays
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.client.flows import Flow
from pytriton.client.tls import Tls
from pytriton.client.transport import create_client, load_lib
from pytriton.client.url import TritonUrl
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["FuturesModelClient"]

T = TypeVar("T")


class FuturesModelClient(BaseModelClient):
    """Calls one model over HTTP or gRPC in the background; each call returns a ``concurrent.futures.Future``.

    For any number of threads. ``with`` closes it::

        with FuturesModelClient("localhost", "classifier") as client:
            futures = [client.infer_sample(image) for image in images]
            outputs = [future.result() for future in futures]

    Errors of a call, also those of its arguments, come out of ``future.result()``. Do not change a call's arrays until
    it is done. ``future.cancel()`` works as long as a call waits for its turn. Callbacks of futures run one after the
    other in a thread of their own, where they may block and call this client.

    Args:
        max_workers: Calls under way at once; None is as many as there are connections, 256.
        max_queue_size: Calls that may wait for their turn; None does not limit them, so that no call blocks.
        non_blocking: A call that finds the queue full raises at once, instead of waiting ``inference_timeout_s`` for
            a place, or for ever if that is None.
        inference_timeout_s: Bounds one inference, not counting its wait in the queue; 60 s.

    The other arguments are those of :class:`BaseModelClient`, but for ``lazy_init``: it never waits in the constructor.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.
        PyTritonClientValueError: Another argument is wrong.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int | None = None,
        max_queue_size: int | None = None,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
        tls: Tls | None = None,
        max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        _check_limit("max_workers", max_workers)
        _check_limit("max_queue_size", max_queue_size)
        self._limits = {"max_workers": max_workers, "max_queue_size": max_queue_size, "non_blocking": non_blocking}
        super().__init__(
            url,
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
            model_config=model_config,
            ensure_model_is_ready=ensure_model_is_ready,
            access_token=access_token,
            tls=tls,
            max_response_bytes=max_response_bytes,
        )
        self._backlog = Backlog(
            f"the futures client of model {model_name!r}",
            max_running=HTTP_CONNECTIONS if max_workers is None else max_workers,
            max_waiting=max_queue_size,
            patience_s=0 if non_blocking else inference_timeout_s,
        )

    def _own_settings(self) -> dict[str, Any]:
        return self._limits

    def _open(self) -> None:
        self._transport = self._make_transport()

    def _make_transport(self) -> AsyncTransport:
        lib = load_async_lib(self._url.scheme)
        return open_async_transport(self._url, lib, self._headers, self._tls, self._max_response_bytes)

    def __enter__(self) -> FuturesModelClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Take no more calls; later ones raise ``PyTritonClientClosedError``. May be called twice.

        Args:
            wait: Return when all calls have ended, those in the queue, too, and threads and connections are gone.
                False returns at once; the calls, those in the queue, too, end by themselves, and threads and
                connections with them. At the end of the program, calls that have not ended are given up.
        """
        self._backlog.close(wait)

    def get_lib(self) -> Any:
        """``tritonclient.http`` or ``tritonclient.grpc``, for the URL's scheme."""
        return load_lib(self._url.scheme)

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """A bare synchronous tritonclient client; see :func:`pytriton.client.utils.create_client_from_url`."""
        return create_client(TritonUrl.from_url(url), network_timeout_s)

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """Wait until the model can serve; the result is None.

        The future raises:
            PyTritonClientModelUnavailableError: The server was reached, but had no such model within ``timeout_s``.
            PyTritonClientTimeoutError: The model was not ready within ``timeout_s`` seconds.

        Raises:
            PyTritonClientClosedError: The client is closed.
            PyTritonClientQueueFullError: There was no place in the queue.
        """
        return self._submit(lambda: self._session.wait_for_model(timeout_s))

    def model_config(self) -> Future[TritonModelConfig]:
        """The model's configuration; waits for the model and fetches it at first use.

        The future raises:
            PyTritonClientModelUnavailableError: The server has no such model.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.

        Raises:
            PyTritonClientClosedError: The client is closed.
            PyTritonClientQueueFullError: There was no place in the queue.
        """
        return self._submit(self._session.model_config)

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Future[Arrays]:
        """Infer one sample; arguments, result and errors of the future are those of :meth:`ModelClient.infer_sample`.

        Raises:
            PyTritonClientClosedError: The client is closed.
            PyTritonClientQueueFullError: There was no place in the queue.
        """
        return self._submit(
            lambda: self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=True))
        )

    def call(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Future[Any]:
        """Call a typed function; arguments, result and errors of the future are those of :meth:`ModelClient.call`.

        Raises:
            PyTritonClientClosedError: The client is closed.
            PyTritonClientQueueFullError: There was no place in the queue.
        """
        return self._submit(
            lambda: self._session.call(self._request(inputs, named_inputs, parameters, headers, sample=True))
        )

    def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Future[Arrays]:
        """Infer a batch; arguments, result and errors of the future are those of :meth:`ModelClient.infer_batch`.

        Raises:
            PyTritonClientClosedError: The client is closed.
            PyTritonClientQueueFullError: There was no place in the queue.
        """
        return self._submit(
            lambda: self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=False))
        )

    def _submit(self, flow: Callable[[], Flow[T]]) -> Future[T]:
        context = copy_context()  # the caller's, for the span that it may have
        return self._backlog.add(lambda: drive_async(context.run(flow), self._transport))


def _check_limit(name: str, limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0):
        raise PyTritonClientValueError(f"{name} must be a whole number above 0, or None for no limit, got {limit!r}")
