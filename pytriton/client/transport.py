"""What transports share: headers, the clients' errors for those of libraries, and connections of event loops."""

from __future__ import annotations

import asyncio
import importlib
import math
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from typing import Any

from pytriton import forks
from pytriton.client.arguments import check_model
from pytriton.client.conversations import Call, OtherProgramError
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.exceptions import ErrorCode
from pytriton.wire.frames import split_details

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = [
    "AsyncNetworkTransport",
    "LoopConnection",
    "ProtocolAdapter",
    "refusal_of",
    "server_exception",
    "time_limit",
]

_UNAVAILABLE = {"503", "StatusCode.UNAVAILABLE"}
_NOT_FOUND = {"404", "StatusCode.NOT_FOUND"}
_CODES = {
    "400": ErrorCode.INVALID_ARG,
    "404": ErrorCode.NOT_FOUND,
    "500": ErrorCode.INTERNAL,
    "501": ErrorCode.UNSUPPORTED,
    "503": ErrorCode.UNAVAILABLE,
    "StatusCode.ALREADY_EXISTS": ErrorCode.ALREADY_EXISTS,
    "StatusCode.CANCELLED": ErrorCode.CANCELLED,
    "StatusCode.INTERNAL": ErrorCode.INTERNAL,
    "StatusCode.INVALID_ARGUMENT": ErrorCode.INVALID_ARG,
    "StatusCode.NOT_FOUND": ErrorCode.NOT_FOUND,
    "StatusCode.UNAVAILABLE": ErrorCode.UNAVAILABLE,
    "StatusCode.UNIMPLEMENTED": ErrorCode.UNSUPPORTED,
    "StatusCode.UNKNOWN": ErrorCode.UNKNOWN,
}


@cache
def server_exception() -> Any:
    """The class ``InferenceServerException`` of tritonclient, imported when a client needs it."""
    return importlib.import_module("tritonclient.utils").InferenceServerException


class ProtocolAdapter:
    """The headers of calls, and the clients' errors for those of libraries; as it is, for HTTP.

    Args:
        server: The server's URL, for messages.
        connection_errors: What the library raises when a connection fails.
        secured: The connection is to be encrypted.
    """

    def __init__(
        self,
        server: str,
        headers: Mapping[str, str],
        *,
        connection_errors: tuple[type[Exception], ...] = (OSError,),
        secured: bool = False,
    ) -> None:
        self._server = server
        self._headers = dict(headers)
        self._connection_errors = connection_errors
        self._server_exception = server_exception()
        self._checked_model: tuple[Any, Any] = ("", "")
        # A server with TLS 1.3 cannot refuse a certificate in any other way.
        self._hint = "; a server that demands clients' certificates closes those without one it trusts" * secured

    def headers(self, call: Call) -> dict[str, str]:
        """The headers of a call and those of every call, which the call's replace; no name is sent twice.

        Raises:
            PyTritonClientValueError: The name or version of the call's model cannot be part of a path.
        """
        model = call.arguments.get("model_name"), call.arguments.get("model_version")
        if model != self._checked_model and model[0]:  # most calls are of the model of the one before
            check_model(model[0], model[1] or None)
            self._checked_model = model
        if not call.headers or not self._headers:
            return {**self._headers, **call.headers}
        replaced = {name.lower() for name in call.headers}
        kept = {name: value for name, value in self._headers.items() if name.lower() not in replaced}
        return {**kept, **call.headers}

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that performing a call raised."""
        if isinstance(error, PyTritonClientError):
            return error
        if isinstance(error, (TimeoutError, asyncio.TimeoutError)):  # two classes in Python 3.10
            return self.timeout(call)
        if isinstance(error, self._server_exception):
            return _refusal(error)
        if _is_about_tls(error):
            return self.tls_failure(call, error)
        if isinstance(error, self._connection_errors):
            return self.connection_failure(call, error)
        return PyTritonClientInferenceServerError(
            f"{call.method} at {self._server} failed: {type(error).__name__}: {error}"
        )

    def timeout(self, call: Call) -> PyTritonClientTimeoutError:
        """The error for a call that has not ended in time."""
        return PyTritonClientTimeoutError(
            f"{self._server} did not answer {call.method} within {call.timeout_s:g} s; the server may still be working "
            "on it"
        )

    def connection_failure(self, call: Call, error: Exception) -> PyTritonClientConnectionError:
        """The error for a call whose connection could not be made, or broke."""
        failure = PyTritonClientConnectionError(
            f"the connection to {self._server} failed at {call.method}: {error}{self._hint}"
        )
        failure.is_other_program = isinstance(error, OtherProgramError)
        return failure

    def tls_failure(self, call: Call, error: Exception) -> PyTritonClientTlsError:
        """The error for a call whose connection could not be encrypted."""
        return PyTritonClientTlsError(
            f"the TLS handshake with {self._server} failed at {call.method}: {error}; check that the server speaks "
            "TLS, that root_certificates hold the authority of its certificate, that the certificate names the URL's "
            "host, and whether the server wants a certificate of this client"
        )


def _refusal(error: Any) -> PyTritonClientInferenceServerError:
    """The clients' error for an error response of the server."""
    text, details = split_details(str(error))
    status = error.status()
    # Over gRPC, a missing access token is UNAVAILABLE as well.
    is_unavailable = status in _UNAVAILABLE and "is restricted" not in text
    refusal = refusal_of(text, is_unavailable=is_unavailable, is_not_found=status in _NOT_FOUND)
    refusal.details = details
    refusal.code = _CODES.get(status)
    return refusal


def refusal_of(text: str, *, is_unavailable: bool, is_not_found: bool) -> PyTritonClientInferenceServerError:
    """The clients' error for what the server says when it refuses a request, over a network or in this process."""
    if is_unavailable and "timeout expired" in text.lower():
        return PyTritonClientQueueTimeoutError(text)
    # The client has seen an unknown model before, or its user knows that the server will load it.
    if is_unavailable or (is_not_found and "unknown model" in text):
        return PyTritonClientServerUnavailableError(text)
    return PyTritonClientInferenceServerError(text)


def _is_about_tls(error: Exception) -> bool:
    # A connection that ends during the handshake says nothing about trust. aiohttp wraps what ssl raises.
    return any(
        isinstance(each, ssl.SSLError)
        and not isinstance(each, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
        for each in (error, error.__cause__)
    )


def time_limit(timeout_s: float) -> AbstractAsyncContextManager[object]:
    """An asynchronous context manager that ends its body with a TimeoutError; infinity is no limit."""
    return timeout(None if math.isinf(timeout_s) else timeout_s)


class LoopConnection:
    """Connections of the running event loop, which closes them when it ends, or when nothing refers to them.

    An asynchronous generator holds them, because event loops close generators. So a client that the program did not
    close leaves no connection behind, and no library warns.

    Args:
        connections: Has a coroutine function ``close``, which is called with that of this object.

    Attributes:
        connections: As given.
        calls: Number of calls under way.
    """

    def __init__(self, connections: Any) -> None:
        self.connections = connections
        self.calls = 0
        self.loop = asyncio.get_running_loop()
        self._holder = _held(connections)
        self._closed = False

    async def open(self) -> None:
        """Register the connections with the event loop, without letting other tasks run."""
        await self._holder.__anext__()

    async def close(self) -> None:
        """Close the connections, unless that has begun already."""
        if not self._closed:
            self._closed = True
            await self._holder.aclose()


async def _held(connections: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await connections.close()


class AsyncNetworkTransport(ABC):
    """An :class:`~pytriton.client.conversations.AsyncTransport` to a server; it connects anew in each event loop.

    Args:
        connect: Makes connections in the running event loop.
    """

    _replaces_failed_connections = False

    def __init__(self, protocol: ProtocolAdapter, connect: Callable[[], Any]) -> None:
        self._protocol = protocol
        self._connect = connect
        self._connection: LoopConnection | None = None
        self._parents: LoopConnection | None = None
        self._closed = False
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the connections to the parent, whose event loop has them."""
        # Keep a reference: finalizing them would need that loop.
        self._parents, self._connection = self._connection, None

    async def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        connection = await self._begin()
        try:
            return await self._perform(connection.connections, call)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._failure(connection, call, error) from error
        finally:
            await self._end(connection)

    @abstractmethod
    async def _perform(self, connections: Any, call: Call) -> Any:
        """Perform one call; may raise any exception of a library."""

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections; later calls raise PyTritonClientClosedError."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _begin(self) -> LoopConnection:
        """The connection for one call, which :meth:`_end` gives back."""
        connection = self._connection
        if connection is None or connection.loop is not asyncio.get_running_loop():
            if self._closed:
                raise PyTritonClientClosedError("the client is closed; make a new one")
            former, connection = connection, LoopConnection(self._connect())
            self._connection = connection
            await connection.open()
            if former is not None and former.loop.is_closed():
                with suppress(RuntimeError):  # of calls that were under way when their loop ended
                    await former.close()
        connection.calls += 1
        return connection

    def _failure(self, connection: LoopConnection, call: Call, error: Exception) -> PyTritonClientError:
        failure = self._protocol.translate(call, error)
        if (
            self._replaces_failed_connections
            and isinstance(failure, PyTritonClientConnectionError)
            and self._connection is connection
        ):
            self._connection = None
        return failure

    async def _end(self, connection: LoopConnection) -> None:
        connection.calls -= 1
        if self._connection is not connection and not connection.calls:
            await connection.close()
