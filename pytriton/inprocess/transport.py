"""How clients talk to a server in this process: their calls, and the transports for threads and for coroutines."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.client.flows import Call
from pytriton.inprocess.enums import DataType
from pytriton.inprocess.exceptions import InvalidArgumentError, NotFoundError, TritonError, UnavailableError
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
    "InferInput",
    "InferRequestedOutput",
    "InferResult",
    "InprocessTransport",
    "ProtocolAdapter",
]


class InferInput:
    """An input of a request. The array is not copied."""

    def __init__(self, name: str, shape: Sequence[int], datatype: str) -> None:
        self.name = name
        self.array: NDArray[Any] = np.empty(0)

    def set_data_from_numpy(self, array: NDArray[Any]) -> None:
        """Set the data."""
        self.array = array


class InferRequestedOutput:
    """An output that a client asks for; the server returns all of them here."""

    def __init__(self, name: str) -> None:
        pass


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
    """Translates calls, which have the names and arguments of tritonclient's, and errors.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

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
                    files = given["files"] or {}
                    config = {} if given["config"] is None else {"config": given["config"]}
                    return self._server.load(name, {**config, **files} or None)
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

    def result(self, call: Call, response: InferenceResponse) -> InferResult:
        """The result of a response.

        Raises:
            PyTritonClientError: The response is an error.
        """
        if response.error is not None:
            raise self.error(call, response.error) from response.error
        return InferResult(response)

    def error(self, call: Call, error: TritonError) -> PyTritonClientError:
        """The client's error for an error of the server, as over a network."""
        text = str(error)
        if isinstance(error, InvalidArgumentError) and text == NOT_STARTED:
            return PyTritonClientConnectionError(f"{call.method} was not possible: {text}")
        if isinstance(error, UnavailableError) and "timeout expired" in text.lower():
            return PyTritonClientQueueTimeoutError(text)
        if isinstance(error, UnavailableError) or (isinstance(error, NotFoundError) and "unknown model" in text):
            return PyTritonClientServerUnavailableError(text)
        return PyTritonClientInferenceServerError(text)

    def timeout(self, call: Call) -> PyTritonClientTimeoutError:
        """The error of a call that has not ended in time."""
        return PyTritonClientTimeoutError(
            f"the server in this process did not answer {call.method} within {call.timeout_s:g} s; the request is "
            "cancelled"
        )

    def _model(self, call: Call) -> Model:
        version = call.arguments["model_version"]
        return self._server.model(call.arguments["model_name"], int(version) if version else LATEST)

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
        self._responses: _Responses | None = None

    def call(self, call: Call) -> Any:
        """Perform one call. Its timeout applies to inferences alone: other calls do not wait."""
        if call.method != "infer":
            return self._adapter.call(call)
        responses = _Responses(self._adapter, call)
        try:
            return self._adapter.result(call, responses.receive())
        finally:
            responses.close()

    def stream(self, call: Call) -> _Responses:
        """Send a request; the result gives its responses one by one.

        Raises:
            PyTritonClientInferenceServerError: The responses to an earlier request have not all been received.
            PyTritonClientError: The server refuses the request.
        """
        if self._responses is not None and not self._responses.ended:
            raise PyTritonClientInferenceServerError(
                "the responses to an earlier request have not all been received; take them all, or close() their "
                "iterator, or use one client for each stream"
            )
        self._responses = _Responses(self._adapter, call)
        return self._responses

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Cancel the stream, if there is one: :meth:`_Responses.next` raises PyTritonClientClosedError then."""
        if self._responses is not None:
            self._responses.abandon()


class _Responses:
    """The responses to one request, which is sent at once.

    Attributes:
        ended: Whether there are no more.

    Raises:
        PyTritonClientError: The server refuses the request.
    """

    def __init__(self, adapter: ProtocolAdapter, call: Call) -> None:
        self.ended = self._abandoned = False
        self._adapter = adapter
        self._call = call
        try:
            self._pending = PendingRequest(adapter.request(call))
            self._pending.send()
        except TritonError as error:
            self.ended = True
            raise adapter.error(call, error) from error

    def next(self) -> InferResult | None:
        """Wait for the next response of a stream; None at its end.

        Raises:
            PyTritonClientError: It did not come in time, it is an error, or the client was closed.
        """
        if self.ended and not self._abandoned:
            return None
        try:
            response = self.receive()
            result = self._adapter.result(self._call, response)
        except BaseException:
            self.close()
            raise
        # A last response without outputs only marks the end.
        return None if response.final and not response.outputs else result

    def receive(self) -> InferenceResponse:
        """The next response.

        Raises:
            PyTritonClientTimeoutError: It did not come in time.
            PyTritonClientClosedError: The client was closed.
        """
        response = self._pending.next(self._call.timeout_s)
        if response is None:
            raise self._adapter.timeout(self._call)
        if self._abandoned:
            raise PyTritonClientClosedError("the client was closed before all responses had been received")
        self.ended = response.final
        return response

    def close(self) -> None:
        """Cancel the request, unless its last response has come."""
        if not self.ended:
            self.ended = True
            self._pending.cancel()

    def abandon(self) -> None:
        """Cancel the request, because the client is closed."""
        if not self.ended:
            self._abandoned = True
        self.close()


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
                result, final = self._adapter.result(call, response), response.final
                if response.outputs or not final:
                    yield result
        finally:
            responses.cancel()

    def _send(self, call: Call) -> AsyncResponseIterator:
        try:
            return AsyncResponseIterator(self._adapter.request(call))
        except TritonError as error:
            raise self._adapter.error(call, error) from error

    async def _receive(self, call: Call, responses: AsyncResponseIterator) -> InferenceResponse:
        try:
            async with timeout(None if math.isinf(call.timeout_s) else call.timeout_s):
                return await anext(responses)
        except asyncio.TimeoutError as error:  # in Python 3.10 it is not the built-in TimeoutError
            raise self._adapter.timeout(call) from error

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Do nothing: there is no connection."""
