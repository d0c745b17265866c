"""Clients of models of a server in this process: those of :mod:`pytriton.client`, without a network.

They check, raise and return the same. Headers and compression have no effect here.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from pytriton import client
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.client.http_transports import CHECK_S, pause
from pytriton.client.session import BaseModelClient, ClientT
from pytriton.client.transport import refusal_of
from pytriton.composition.connector import secret_of
from pytriton.inprocess.capi import DataType
from pytriton.inprocess.exceptions import (
    InvalidArgumentError,
    NotFoundError,
    TritonError,
    UnavailableError,
    UnsupportedError,
    code_of,
)
from pytriton.inprocess.handle import NOT_STARTED, is_forked
from pytriton.inprocess.messages import InferenceRequest, InferenceResponse
from pytriton.inprocess.pending import AsyncResponseIterator, PendingRequest, Unread, send_on_loop
from pytriton.inprocess.server import LATEST, Model, Server
from pytriton.inprocess.tensor import array_view
from pytriton.introspection import override
from pytriton.wire.frames import SEQUENCE_END, SEQUENCE_START, split_details

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]

NO_URL = "http://in-this-process"


class InferResult:
    """A response without an error."""

    def __init__(self, response: InferenceResponse) -> None:
        self._outputs = response.outputs

    def as_numpy(self, name: str) -> NDArray[Any] | None:
        """A read-only view of an output, or for BYTES an array of ``bytes``; None if the response does not have it."""
        tensor = self._outputs.get(name)
        if tensor is None:
            return None
        if tensor.data_type == DataType.BYTES:
            return tensor.to_bytes_array()
        array = array_view(tensor)
        array.flags.writeable = False
        return array


class ProtocolAdapter:
    """Translates calls, which have the names and arguments of tritonclient's, results and errors."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._models: dict[tuple[str, str], Model] = {}

    def call(self, call: Call) -> Any:
        """Perform a call that is not an inference.

        Raises:
            PyTritonClientError: The server refuses it.
        """
        given = call.arguments
        name = given.get("model_name", "")
        try:
            match call.method:
                case "is_server_live":
                    return self._server.live()
                case "is_server_ready":
                    return self._server.ready()
                case "is_model_ready":
                    return self._model(call).is_served()
                case "get_model_config":
                    return self._model(call).config()
                case "get_inference_statistics":
                    return self._model(call).statistics() if name else self._statistics()
                case "get_model_repository_index":
                    return [each for each in self._server.model_index() if each.get("version")]
                case "load_model":
                    config = {} if given.get("config") is None else {"config": given["config"]}
                    return self._server.load(name, {**config, **(given.get("files") or {})} or None)
                case "unload_model":
                    return self._server.unload(name)
        except TritonError as error:
            raise self.error(call, error) from error
        raise PyTritonClientInferenceServerError(f"a server in this process knows no {call.method}")

    def _statistics(self) -> dict[str, Any]:
        """Those of all models that are ready."""
        ready = {each["name"] for each in self._server.model_index() if each.get("state") == "READY"}
        found = [self._server.model(name).statistics()["model_stats"] for name in sorted(ready)]
        return {"model_stats": [entry for entries in found for entry in entries]}

    def request(self, call: Call) -> InferenceRequest:
        """The request of an inference."""
        given = call.arguments
        return InferenceRequest(
            self._model(call),
            given["request_id"],
            flags=(SEQUENCE_START if given.get("sequence_start") else 0)
            | (SEQUENCE_END if given.get("sequence_end") else 0),
            correlation_id=given.get("sequence_id"),
            priority=given.get("priority", 0),
            timeout=given.get("timeout", 0),
            inputs={tensor.name: tensor.array for tensor in given["inputs"]},
            parameters=given["parameters"] or {},
        )

    def result(self, call: Call, response: InferenceResponse | None) -> InferResult:
        """The result of a response; None if it did not come in time.

        Raises:
            PyTritonClientTimeoutError: It did not come in time.
            PyTritonClientError: The response is an error.
        """
        if response is None:
            raise PyTritonClientTimeoutError(
                f"the server in this process did not answer {call.method} within {call.timeout_s:g} s; the request is "
                "cancelled"
            )
        if response.error is not None:
            raise self.error(call, response.error) from response.error
        return InferResult(response)

    def error(self, call: Call, error: TritonError) -> PyTritonClientError:
        """The client's error for an error of the server, as over a network."""
        text, details = split_details(str(error))
        if is_forked():  # waiting does not change that
            return PyTritonClientClosedError(f"{call.method} is not possible: {text}")
        if isinstance(error, InvalidArgumentError) and text == NOT_STARTED:
            return PyTritonClientConnectionError(f"{call.method} was not possible: {text}")
        is_unavailable, is_not_found = isinstance(error, UnavailableError), isinstance(error, NotFoundError)
        refusal = refusal_of(text, is_unavailable=is_unavailable, is_not_found=is_not_found)
        refusal.code, refusal.details = code_of(error), details
        return refusal

    def _model(self, call: Call) -> Model:
        """The same object for each call: it remembers the layouts of responses."""
        key = name, version = call.arguments["model_name"], call.arguments.get("model_version", "")
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = self._server.model(name, int(version) if version else LATEST)
        return model


class InprocessTransport:
    """Calls a server from threads. A stream of responses must end before the next begins, as over a network.

    Attributes:
        check: As that of :class:`pytriton.client.http_transports.HttpTransport`.
    """

    check: Callable[[], None] | None = None

    def __init__(self, adapter: ProtocolAdapter) -> None:
        self._adapter = adapter
        self._stream: _Stream | None = None

    def call(self, call: Call) -> Any:
        """Perform one call. Its timeout applies to inferences alone: other calls do not wait."""
        if call.method != "infer":
            return self._adapter.call(call)
        pending = _send(self._adapter, call)
        response = None
        try:
            response = self._next(pending, call.timeout_s)
            return self._adapter.result(call, response)
        finally:
            if response is None or not response.final:
                pending.cancel()

    def _next(self, pending: PendingRequest, timeout_s: float) -> InferenceResponse | None:
        if self.check is None:
            return pending.next(timeout_s)
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            response = pending.next(min(CHECK_S, left_s))
            if response is not None:
                return response
            self.check()
        return None

    def stream(self, call: Call) -> _Stream:
        """Send a request; the result gives its responses one by one.

        Raises:
            PyTritonClientInferenceServerError: The responses to an earlier request have not all been received.
            PyTritonClientError: The server refuses the request.
        """
        if self._stream is not None and not self._stream.ended:
            raise PyTritonClientInferenceServerError(
                "the responses to an earlier request have not all been received; take them all, or close() their "
                "iterator, or use one client for each stream"
            )
        self._stream = _Stream(self._adapter, call)
        return self._stream

    def sleep(self, seconds: float) -> None:
        """Pause; what the check raises ends that."""
        pause(seconds, self.check)

    def close(self) -> None:
        """Cancel the stream, if there is one: its ``next`` raises PyTritonClientClosedError then."""
        if self._stream is not None:
            self._stream.close(by_client=True)


class _Stream:
    """The responses to one request, which the constructor sends.

    Attributes:
        ended: Whether there are no more.
    """

    def __init__(self, adapter: ProtocolAdapter, call: Call) -> None:
        self.ended = self._closed_by_client = False
        self._adapter = adapter
        self._call = call
        self._pending = _send(adapter, call)

    def next(self) -> InferResult | None:
        """Wait for the next response; None at the end.

        Raises:
            PyTritonClientError: It did not come in time, it is an error, or the client was closed.
        """
        if self.ended and not self._closed_by_client:
            return None
        try:
            response = self._pending.next(self._call.timeout_s)
            if response is not None and self._closed_by_client:
                raise PyTritonClientClosedError("the client was closed before all responses had been received")
            result = self._adapter.result(self._call, response)
        except BaseException:
            self.close()
            raise
        assert response is not None
        self.ended = response.final
        # A last response without outputs only marks the end.
        return None if response.final and not response.outputs else result

    def close(self, by_client: bool = False) -> None:
        """Cancel the request, unless its last response has come; ``by_client``: because the client is closed."""
        if not self.ended:
            self.ended, self._closed_by_client = True, by_client
            self._pending.cancel()


def _send(adapter: ProtocolAdapter, call: Call) -> PendingRequest:
    try:
        pending = PendingRequest(adapter.request(call))
        pending.send()
    except TritonError as error:
        raise adapter.error(call, error) from error
    return pending


class _FirstResponse:
    """Waits for the first response to a request in the running event loop.

    Attributes:
        loop: The event loop.
        response: Gets the response; None if it did not come in time.
    """

    def __init__(self, timeout_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.response: asyncio.Future[InferenceResponse | None] = self.loop.create_future()
        self._timer = None if math.isinf(timeout_s) else self.loop.call_later(timeout_s, self.put_nowait, None)

    def put_nowait(self, response: InferenceResponse | None) -> None:
        """A response has come, or the time has passed."""
        if not self.response.done():
            self.response.set_result(response)

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()


class AsyncInprocessTransport:
    """Calls a server from coroutines, any number at once."""

    def __init__(self, adapter: ProtocolAdapter) -> None:
        self._adapter = adapter

    async def call(self, call: Call) -> Any:
        """Perform one call; if it is cancelled, so is the request in the server."""
        if call.method in ("load_model", "unload_model"):
            return await asyncio.get_running_loop().run_in_executor(None, self._adapter.call, call)
        if call.method != "infer":
            return self._adapter.call(call)
        first = _FirstResponse(call.timeout_s)
        try:
            pending = send_on_loop(self._adapter.request(call), first.loop, first)
        except TritonError as error:
            first.end()
            raise self._adapter.error(call, error) from error
        response = None
        try:
            response = await first.response
            return self._adapter.result(call, response)
        finally:
            first.end()
            if response is None or not response.final:
                pending.cancel()

    async def stream(self, call: Call, unread: Unread | None = None) -> AsyncGenerator[InferResult, None]:
        """Send a request, and yield the responses. Closing the generator cancels the request.

        Args:
            unread: Limits the responses that have come and were not yielded yet.

        Raises:
            PyTritonClientError: A response did not come in time, or is an error.
        """
        try:
            responses = AsyncResponseIterator(self._adapter.request(call), unread=unread)
        except TritonError as error:
            raise self._adapter.error(call, error) from error
        try:
            final = False
            while not final:
                response = await self._receive(call, responses)
                result = self._adapter.result(call, response)
                assert response is not None
                final = response.final
                if response.outputs or not final:
                    yield result
        finally:
            responses.cancel()

    async def _receive(self, call: Call, responses: AsyncResponseIterator) -> InferenceResponse | None:
        try:
            async with timeout(None if math.isinf(call.timeout_s) else call.timeout_s):
                return await anext(responses)
        except asyncio.TimeoutError:  # in Python 3.10 it is not the built-in TimeoutError
            return None

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class InprocessConnector:
    """How callables of this process call models of a server in it, as ``pytriton.composition.connector.Connector``."""

    def __init__(self, server: Server) -> None:
        self._adapter = ProtocolAdapter(server)
        self.secret = secret_of(None)

    def transport(self, *, streams: bool = False) -> InprocessTransport:
        """What calls the server from one thread at a time."""
        return InprocessTransport(self._adapter)

    def async_transport(self, *, streams: bool = False) -> AsyncInprocessTransport:
        """What calls the server from event loops."""
        return AsyncInprocessTransport(self._adapter)

    def for_processes(self) -> None:
        """None: worker processes cannot reach the server."""


# Clients


class _InprocessClient(BaseModelClient):
    """Base of the clients of a server in this process.

    Args:
        model_version: Version of the model; None uses the highest.
        settings: ``lazy_init``, ``init_timeout_s``, ``inference_timeout_s``, ``model_config`` and
            ``ensure_model_is_ready`` of :class:`~pytriton.client.session.BaseModelClient`, and those of the class
            itself.
    """

    def __init__(self, server: Server, model_name: str, model_version: str | None = None, **settings: Any) -> None:
        self._adapter = ProtocolAdapter(server)
        self._server = server
        super().__init__(NO_URL, model_name, model_version, **settings)

    def _make_transport(self) -> Any:
        return InprocessTransport(self._adapter)

    @classmethod
    def from_existing_client(cls: type[ClientT], existing_client: BaseModelClient) -> ClientT:
        """A new client of the same server and model, with the settings of another one."""
        if not isinstance(existing_client, _InprocessClient):
            raise TypeError(f"{existing_client!r} is no client of a server in this process")
        return super().from_existing_client(existing_client)

    @override
    def _connection(self) -> tuple[Any, dict[str, Any]]:
        return self._server, {}

    def get_lib(self) -> ModuleType:
        """UnsupportedError: tritonclient has no module for a server in this process."""
        raise UnsupportedError("tritonclient has no module for a server in this process; use the server itself")

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """UnsupportedError, as :meth:`get_lib`."""
        raise UnsupportedError("tritonclient has no client of a server in this process; use the server itself")


class _AsyncInprocessClient(_InprocessClient):
    def _make_transport(self) -> Any:
        return AsyncInprocessTransport(self._adapter)


class ModelClient(_InprocessClient, client.ModelClient):
    """:class:`pytriton.client.ModelClient` of a server in this process. For one thread at a time."""


class DecoupledModelClient(_InprocessClient, client.DecoupledModelClient):
    """:class:`pytriton.client.DecoupledModelClient` of a server in this process. For one thread at a time."""


class FuturesModelClient(_AsyncInprocessClient, client.FuturesModelClient):
    """:class:`pytriton.client.FuturesModelClient` of a server in this process."""


class AsyncioModelClient(_AsyncInprocessClient, client.AsyncioModelClient):
    """:class:`pytriton.client.AsyncioModelClient` of a server in this process."""


class AsyncioDecoupledModelClient(_AsyncInprocessClient, client.AsyncioDecoupledModelClient):
    """:class:`pytriton.client.AsyncioDecoupledModelClient` of a server in this process."""
