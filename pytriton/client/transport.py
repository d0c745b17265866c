"""Synchronous transports, on tritonclient's synchronous clients."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pytriton import forks
from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, check_timeout
from pytriton.client.dialect import GrpcDialect, HttpDialect
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientError
from pytriton.client.flows import NETWORK_TIMEOUT_S, Call, Transport
from pytriton.client.sync_http import http_client_class
from pytriton.client.tls import Tls
from pytriton.client.url import TritonUrl
from pytriton.client.warnings import NotSupportedTimeoutWarning

__all__ = [
    "GeventTransport",
    "GrpcTransport",
    "HttpTransport",
    "adopt_client",
    "bare_client",
    "create_client",
    "grpc_channel_arguments",
    "grpc_connector",
    "grpc_dialect",
    "load_lib",
    "open_transport",
    "passing_client",
]

_LARGEST_MESSAGE = 2**31 - 1
"""Of gRPC."""


def load_lib(scheme: str) -> Any:
    """``tritonclient.http`` or ``tritonclient.grpc``, imported when it is needed.

    Each costs 0.1 to 0.2 s to import, and each needs an extra of tritonclient that the other does not.
    """
    return importlib.import_module(f"tritonclient.{scheme}")


def create_client(url: TritonUrl, network_timeout_s: float | None) -> Any:
    """A bare ``InferenceServerClient`` of tritonclient; the caller closes it.

    Args:
        url: The server.
        network_timeout_s: For HTTP, bounds connecting, and every wait for data; None is tritonclient's default of 60.
            gRPC has no such setting, which is a :class:`NotSupportedTimeoutWarning`.
    """
    return bare_client(load_lib(url.scheme), url, network_timeout_s)


def passing_client(url: TritonUrl, timeout_s: float) -> Any:
    """An ``InferenceServerClient`` for one conversation; the caller closes it. From any thread, one at a time.

    Args:
        url: The server.
        timeout_s: Over HTTP, the whole conversation's; gRPC calls are bounded by their own arguments alone.
    """
    lib = load_lib(url.scheme)
    if url.scheme == "grpc":
        return lib.InferenceServerClient(url.without_scheme)
    client = http_client_class(lib)(url)
    client.deadline = time.monotonic() + timeout_s
    return client


def bare_client(lib: Any, url: TritonUrl, network_timeout_s: float | None) -> Any:
    """A bare client of any of tritonclient's modules; arguments as for :func:`create_client`."""
    if url.scheme == "grpc":
        if network_timeout_s is not None:
            warnings.warn(
                "network_timeout_s has no effect on a gRPC client; pass client_timeout to each of its calls",
                NotSupportedTimeoutWarning,
                stacklevel=4,
            )
        return lib.InferenceServerClient(url.without_scheme)
    timeout_s = check_timeout("network_timeout_s", network_timeout_s, NETWORK_TIMEOUT_S)
    is_async = lib.__name__.endswith(".aio")
    timeouts = ("conn_timeout",) if is_async else ("connection_timeout", "network_timeout")
    return lib.InferenceServerClient(url.without_scheme, **dict.fromkeys(timeouts, timeout_s))


def adopt_client(client: Any, headers: Mapping[str, str]) -> Transport:
    """A transport on a tritonclient client of somebody else, who closes it.

    Args:
        client: A ``tritonclient.http`` or ``tritonclient.grpc`` client.
        headers: Sent with every call.
    """
    # By the module's name, so that the other protocol's module need not be imported to tell.
    if any(kind.__module__.startswith("tritonclient.grpc") for kind in type(client).__mro__):
        return GrpcTransport(GrpcDialect(load_lib("grpc"), "the server", headers), lambda: client)
    return GeventTransport(load_lib("http"), client, headers)


def open_transport(
    url: TritonUrl,
    lib: Any,
    headers: Mapping[str, str],
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> Transport:
    """A transport that connects at its first call.

    Args:
        url: The server.
        lib: What :func:`load_lib` gives for the URL's scheme.
        headers: Sent with every call.
        tls: None does not encrypt.
        max_response_bytes: The longest response to take; None for any.
    """
    if url.scheme == "grpc":
        connect = grpc_connector(url, lib, tls, max_response_bytes)
        return GrpcTransport(grpc_dialect(url, lib, headers, tls), connect)
    dialect = HttpDialect(lib, url.with_scheme, headers, secured=tls is not None)
    return HttpTransport(dialect, http_client_class(lib)(url, tls.context() if tls else None, max_response_bytes))


def grpc_dialect(url: TritonUrl, lib: Any, headers: Mapping[str, str], tls: Tls | None) -> GrpcDialect:
    """How calls are put to a server, for synchronous and asynchronous transports alike."""
    return GrpcDialect(lib, url.with_scheme, headers, secured=tls is not None)


def grpc_channel_arguments(max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES) -> list[tuple[str, int]]:
    """Options of a channel, which replace tritonclient's own."""
    return [
        ("grpc.max_send_message_length", _LARGEST_MESSAGE),
        ("grpc.max_receive_message_length", min(max_response_bytes or _LARGEST_MESSAGE, _LARGEST_MESSAGE)),
        # Every client has a connection of its own, and none inherits another one's pause after a failure.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def grpc_connector(url: TritonUrl, lib: Any, tls: Tls | None, max_response_bytes: int | None) -> Callable[[], Any]:
    """What makes a tritonclient client with a channel of its own, whenever it is called."""
    trust = tls.grpc_arguments() if tls else {}
    options = grpc_channel_arguments(max_response_bytes)
    return lambda: lib.InferenceServerClient(url.without_scheme, channel_args=options, **trust)


class HttpTransport:
    """HTTP over one kept-alive connection. For one thread at a time.

    Args:
        dialect: How calls are put.
        client: Of the class that :func:`http_client_class` gives; closed with the transport.
    """

    def __init__(self, dialect: HttpDialect, client: Any) -> None:
        self._dialect = dialect
        self._client = client

    def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        self._client.deadline = time.monotonic() + call.timeout_s
        try:
            raw = getattr(self._client, call.method)(**self._dialect.arguments(call))
            return self._dialect.answer(call, raw)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._dialect.translate(call, error) from error

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class GeventTransport:
    """HTTP on a tritonclient client of somebody else, who closes it.

    Args:
        lib: ``tritonclient.http``.
        client: The client.
        headers: Sent with every call.
    """

    def __init__(self, lib: Any, client: Any, headers: Mapping[str, str]) -> None:
        # A connection that ends early, or a peer that does not speak HTTP, is a parser's error to geventhttpclient.
        broken = importlib.import_module("geventhttpclient.response").HTTPParseError
        self._dialect = HttpDialect(lib, "the server", headers, connection_errors=(OSError, broken))
        self._client = client
        self._gevent = importlib.import_module("gevent")

    def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        limit_s = None if math.isinf(call.timeout_s) else call.timeout_s
        # Thrown into whatever waits on the socket. As an OSError, so that the library cleans up as after any of those.
        expired = TimeoutError()
        with self._gevent.Timeout(limit_s, expired) as timer:
            try:
                raw = getattr(self._client, call.method)(**self._dialect.arguments(call))
                return self._dialect.answer(call, raw)
            except Exception as error:
                # tritonclient may have turned it into an error of the server that it was reading.
                ended = limit_s is not None and not timer.pending
                raise self._dialect.translate(call, expired if ended else error) from error

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Leave the client as it is."""


class GrpcTransport:
    """gRPC over one channel.

    Args:
        dialect: How calls are put.
        connect: Makes a ``tritonclient.grpc.InferenceServerClient``.
    """

    def __init__(self, dialect: GrpcDialect, connect: Callable[[], Any]) -> None:
        self._dialect = dialect
        self._connect = connect
        self._client: Any = None
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the channel to the parent: the next call makes a new one."""
        self._client = None

    def call(self, call: Call) -> Any:
        """Perform one call."""
        if self._client is None:
            self._client = self._connect()
        try:
            raw = getattr(self._client, call.method)(**self._dialect.arguments(call))
            return self._dialect.answer(call, raw)
        except PyTritonClientError:
            raise
        except Exception as error:
            translated = self._dialect.translate(call, error)
            if isinstance(translated, PyTritonClientConnectionError):
                # A channel that failed would wait longer and longer before it tries again; a new one tries at once.
                self._client = None
            raise translated from error

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the channel."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
