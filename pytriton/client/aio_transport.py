"""Asynchronous transports, on tritonclient's clients for asyncio."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Any

from pytriton import forks
from pytriton.client.aio_drive import AsyncTransport
from pytriton.client.aio_http import http_client_class
from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.dialect import GrpcDialect, HttpDialect
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientValueError,
)
from pytriton.client.flows import Call
from pytriton.client.http_pool import HttpPool
from pytriton.client.tls import Tls
from pytriton.client.transport import bare_client, grpc_connector, grpc_dialect
from pytriton.client.url import TritonUrl

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = [
    "HTTP_CONNECTIONS",
    "AsyncGrpcTransport",
    "AsyncHttpTransport",
    "Lease",
    "adopt_async_client",
    "create_async_client",
    "grpc_lease",
    "load_async_lib",
    "open_async_transport",
]

HTTP_CONNECTIONS = 256
"""More calls than this at once wait for each other: programs may have 1,024 files open, if nobody raised that."""

Lease = AsyncGenerator[Any, None]
"""Yields a tritonclient client once, and takes it back when it is closed."""


def load_async_lib(scheme: str) -> Any:
    """``tritonclient.http.aio`` or ``tritonclient.grpc.aio``, imported when it is needed."""
    return importlib.import_module(f"tritonclient.{scheme}.aio")


def create_async_client(url: TritonUrl, network_timeout_s: float | None) -> Any:
    """A bare ``InferenceServerClient`` for asyncio; the caller closes it. HTTP ones can only be made in an event loop.

    Args:
        url: The server.
        network_timeout_s: For HTTP, bounds every call; None is tritonclient's default of 60. gRPC has no such setting,
            which is a :class:`NotSupportedTimeoutWarning`.
    """
    return bare_client(load_async_lib(url.scheme), url, network_timeout_s)


def adopt_async_client(client: Any, headers: Mapping[str, str]) -> AsyncTransport:
    """A transport on a client of somebody else, who closes it.

    Args:
        client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.
        headers: Sent with every call.

    Raises:
        PyTritonClientValueError: It is a synchronous client.
    """
    modules = [kind.__module__ for kind in type(client).__mro__]
    # By the module's name, so that the other protocol's module need not be imported to tell.
    if any(module.startswith("tritonclient.grpc.aio") for module in modules):
        return AsyncGrpcTransport(GrpcDialect(load_async_lib("grpc"), "the server", headers), lambda: _lent(client))
    if any(module.startswith("tritonclient.") for module in modules) and not any(".aio" in each for each in modules):
        raise PyTritonClientValueError(
            f"{type(client).__module__}.{type(client).__name__} is a synchronous client; pass one of "
            "tritonclient.http.aio or tritonclient.grpc.aio, or use the functions of pytriton.client.utils"
        )
    return AsyncHttpTransport(_http_dialect(load_async_lib("http"), "the server", headers), lambda: _lent(client))


def open_async_transport(
    url: TritonUrl,
    lib: Any,
    headers: Mapping[str, str],
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> AsyncTransport:
    """A transport that connects at its first call. It may be made anywhere, also outside event loops.

    Args:
        url: The server.
        lib: What :func:`load_async_lib` gives for the URL's scheme.
        headers: Sent with every call.
        tls: None does not encrypt.
        max_response_bytes: The longest response to take; None for any.
    """
    if url.scheme == "grpc":
        return AsyncGrpcTransport(grpc_dialect(url, lib, headers, tls), grpc_lease(url, lib, tls, max_response_bytes))
    client_class = http_client_class(lib)
    context = tls.context() if tls else None
    return AsyncHttpTransport(
        HttpDialect(lib, url.with_scheme, headers, secured=tls is not None),
        lambda: _owned(client_class(HttpPool(url, HTTP_CONNECTIONS, context, max_response_bytes))),
    )


def grpc_lease(url: TritonUrl, lib: Any, tls: Tls | None, max_response_bytes: int | None) -> Callable[[], Lease]:
    """What leases a tritonclient client with a channel of its own, whenever it is called."""
    connect = grpc_connector(url, lib, tls, max_response_bytes)

    def lease() -> Lease:
        _grpc.begin()
        return _owned(connect())

    return lease


class _GrpcProcess:
    """Keeps gRPC for asyncio from being used where it crashes or hangs.

    One thread serves all its channels. A forked child does not have that thread, and gRPC starts no other.
    """

    def __init__(self) -> None:
        self._process: int | None = None
        self._is_inherited = False
        forks.register(self)

    def begin(self) -> None:
        """A channel is going to be made in this process; raises PyTritonClientClosedError if it would not work."""
        if self._is_inherited:
            raise PyTritonClientClosedError(
                f"gRPC for asyncio was used in process {self._process}, from which this process was forked, and works "
                "there alone; use an http:// URL or ModelClient here, or start this process with the method 'spawn' of "
                "multiprocessing"
            )
        self._process = os.getpid()

    def after_fork(self) -> None:
        self._is_inherited = self._process is not None


_grpc = _GrpcProcess()


def _http_dialect(lib: Any, server: str, headers: Mapping[str, str]) -> HttpDialect:
    failed = importlib.import_module("aiohttp").ClientError
    return HttpDialect(lib, server, headers, connection_errors=(OSError, failed))


async def _owned(client: Any) -> Lease:
    try:
        yield client
    finally:
        await client.close()


async def _lent(client: Any) -> Lease:
    yield client


class _Connection:
    """A tritonclient client for one event loop.

    Held by an asynchronous generator, because event loops close those that are still open when they end, or that
    nobody refers to any more: a client that was not closed leaves no connection, nor the libraries' warnings, behind.

    Args:
        lease: Of the client.
    """

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self.client: Any = None
        self.calls = 0

    async def open(self) -> None:
        """Take the client, without letting other tasks run."""
        self.client = await self._lease.__anext__()

    async def close(self) -> None:
        """Give the client back."""
        await self._lease.aclose()

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is loop

    @property
    def outlived_its_loop(self) -> bool:
        return self._loop.is_closed()


class _Transport:
    """What both protocols have in common: a connection that is made where it is first needed.

    Args:
        connect: Leases a tritonclient client.
    """

    def __init__(self, connect: Callable[[], Lease]) -> None:
        self._connect = connect
        self._connection: _Connection | None = None
        self._parents: _Connection | None = None
        self._closed = False
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the connection to the parent, whose event loop has it."""
        self._parents, self._connection = self._connection, None  # referred to: the end of it would need that loop

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connection; no other will be made."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> _Connection:
        connection, loop = self._connection, asyncio.get_running_loop()
        if connection is not None and connection.serves(loop):
            return connection
        if self._closed:
            raise PyTritonClientClosedError("the client is closed; make a new one")
        fresh = self._connection = _Connection(self._connect())
        await fresh.open()
        if connection is not None and connection.outlived_its_loop:
            with suppress(RuntimeError):  # what calls that were under way there say of their loop's end
                await connection.close()
        return fresh


class AsyncHttpTransport(_Transport):
    """HTTP over kept-alive connections, one for each call under way.

    Args:
        dialect: How calls are put.
        connect: Leases a ``tritonclient.http.aio.InferenceServerClient``.
    """

    def __init__(self, dialect: HttpDialect, connect: Callable[[], Lease]) -> None:
        super().__init__(connect)
        self._dialect = dialect

    async def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        try:
            async with timeout(None if math.isinf(call.timeout_s) else call.timeout_s):
                client = (await self._connected()).client
                raw = await getattr(client, call.method)(**self._dialect.arguments(call))
            return self._dialect.answer(call, raw)
        except asyncio.TimeoutError as error:  # in Python 3.10 it is not the built-in TimeoutError
            raise self._dialect.timeout(call) from error
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._dialect.translate(call, error) from error


class AsyncGrpcTransport(_Transport):
    """gRPC over one channel.

    Args:
        dialect: How calls are put.
        connect: Leases a ``tritonclient.grpc.aio.InferenceServerClient``.
    """

    def __init__(self, dialect: GrpcDialect, connect: Callable[[], Lease]) -> None:
        super().__init__(connect)
        self._dialect = dialect

    async def call(self, call: Call) -> Any:
        """Perform one call."""
        connection = await self._begin()
        try:
            raw = await getattr(connection.client, call.method)(**self._dialect.arguments(call))
            return self._dialect.answer(call, raw)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._failure(connection, call, error) from error
        finally:
            await self._end(connection)

    async def _begin(self) -> _Connection:
        """The connection for one call, which :meth:`_end` gives back."""
        connection = await self._connected()
        connection.calls += 1
        return connection

    def _failure(self, connection: _Connection, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' own error for what a call raised."""
        translated = self._dialect.translate(call, error)
        if isinstance(translated, PyTritonClientConnectionError) and self._connection is connection:
            # A channel that failed would wait longer and longer before it tries again; a new one tries at once.
            self._connection = None
        return translated

    async def _end(self, connection: _Connection) -> None:
        connection.calls -= 1
        if self._connection is not connection and not connection.calls:
            await connection.close()
