"""How clients talk to a server in this process: their calls, and the transports for threads and for coroutines."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

from numpy.typing import NDArray

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.exceptions import ErrorCode
from pytriton.inprocess.enums import DataType
from pytriton.inprocess.exceptions import (
    AlreadyExistsError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from pytriton.inprocess.handle import NOT_STARTED
from pytriton.inprocess.model import LATEST, Model
from pytriton.inprocess.pending import AsyncResponseIterator, PendingRequest
from pytriton.inprocess.request import InferenceRequest
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.server import Server
from pytriton.inprocess.tensor import array_view

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = [
    "AsyncInprocessTransport",
    "InferResult",
    "InprocessTransport",
    "ProtocolAdapter",
]

_CODES: dict[type[TritonError], ErrorCode] = {
    AlreadyExistsError: ErrorCode.ALREADY_EXISTS,
    CancelledError: ErrorCode.CANCELLED,
    InternalError: ErrorCode.INTERNAL,
    InvalidArgumentError: ErrorCode.INVALID_ARG,
    NotFoundError: ErrorCode.NOT_FOUND,
    UnavailableError: ErrorCode.UNAVAILABLE,
    UnknownError: ErrorCode.UNKNOWN,
    UnsupportedError: ErrorCode.UNSUPPORTED,
}


class InferResult:
    """A response without an error.

    Args:
        response: The response.
    """

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
    """Translates calls, which have the names and arguments of tritonclient's, results and errors.

    Args:
        server: The server.
    """

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
                    return self._is_model_ready(call)
                case "get_model_config":
                    return self._model(call).config()
                case "get_model_repository_index":
                    return self._index()
                case "load_model":
                    config = {} if given["config"] is None else {"config": given["config"]}
                    return self._server.load(name, {**config, **(given["files"] or {})} or None)
                case "unload_model":
                    return self._server.unload(name)
        except TritonError as error:
            raise self.error(call, error) from error
        raise PyTritonClientInferenceServerError(f"a server in this process knows no {call.method}")

    def request(self, call: Call) -> InferenceRequest:
        """The request of an inference."""
        given = call.arguments
        return InferenceRequest(
            self._model(call),
            given["request_id"],
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
        text = str(error)
        if isinstance(error, InvalidArgumentError) and text == NOT_STARTED:
            return PyTritonClientConnectionError(f"{call.method} was not possible: {text}")
        refusal = self._refusal(error, text)
        refusal.code = _CODES.get(type(error))
        return refusal

    def _refusal(self, error: TritonError, text: str) -> PyTritonClientInferenceServerError:
        if isinstance(error, UnavailableError) and "timeout expired" in text.lower():
            return PyTritonClientQueueTimeoutError(text)
        if isinstance(error, UnavailableError) or (isinstance(error, NotFoundError) and "unknown model" in text):
            return PyTritonClientServerUnavailableError(text)
        return PyTritonClientInferenceServerError(text)

    def _model(self, call: Call) -> Model:
        """The same object for each call: it remembers the layouts of responses."""
        key = name, version = call.arguments["model_name"], call.arguments["model_version"]
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = self._server.model(name, int(version) if version else LATEST)
        return model

    def _is_model_ready(self, call: Call) -> bool:
        try:
            return self._model(call).ready()
        except (NotFoundError, UnavailableError):
            return False

    def _index(self) -> list[dict[str, str]]:
        return [
            {"name": name, "version": str(version), "state": model.state or ""}
            for (name, version), model in self._server.models().items()
            if version != LATEST
        ]


class InprocessTransport:
    """Calls a server from threads. A stream of responses must end before the next begins, as over a network."""

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
            response = pending.next(call.timeout_s)
            return self._adapter.result(call, response)
        finally:
            if response is None or not response.final:
                pending.cancel()

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
        """Pause."""
        time.sleep(seconds)

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
        responses = self._send(call)
        try:
            return self._adapter.result(call, await self._receive(call, responses))
        finally:
            responses.cancel()

    async def stream(self, call: Call) -> AsyncGenerator[InferResult, None]:
        """Send a request, and yield the responses. Closing the generator cancels the request.

        Raises:
            PyTritonClientError: A response did not come in time, or is an error.
        """
        responses = self._send(call)
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

    def _send(self, call: Call) -> AsyncResponseIterator:
        try:
            return AsyncResponseIterator(self._adapter.request(call))
        except TritonError as error:
            raise self._adapter.error(call, error) from error

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
