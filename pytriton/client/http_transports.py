"""HTTP over blocking sockets, and in event loops: the only code of the clients that touches sockets."""

from __future__ import annotations

import asyncio
import math
import queue
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from pytriton import forks
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.http_protocol import HttpProtocol, HttpResponse, Part, ResponseReader
from pytriton.client.transport import AsyncNetworkTransport, time_limit

__all__ = [
    "HTTP_CONNECTIONS",
    "AsyncHttpTransport",
    "AsyncioConnection",
    "BlockingConnection",
    "ConnectionPool",
    "HttpTransport",
]

HTTP_CONNECTIONS = 256
"""Further calls in one event loop wait, because the default limit of open files is 1,024."""

_RECEIVED_BYTES = 2**16
_JOINED_BYTES = 2**16
"""For requests up to this size, one copy and one system call cost less than a system call for each part."""


class HttpTransport:
    """A ``Transport`` over one kept-alive connection; from any thread, but one call at a time.

    gevent, which tritonclient uses, keeps two files open for each thread that has ever called it. In a process with
    more than 1,024 open files it makes a new connection for each call.

    Args:
        url: The server.
        headers: Sent with every call.
        tls: None does not encrypt.
        max_response_bytes: As of :class:`ResponseReader`.
    """

    def __init__(
        self, url: TritonUrl, headers: Mapping[str, str], tls: Tls | None, max_response_bytes: int | None
    ) -> None:
        self._protocol = HttpProtocol(url, headers, secured=tls is not None)
        self._url = url
        self._tls = tls.context() if tls else None
        self._max_response_bytes = max_response_bytes
        self._connection: BlockingConnection | None = None

    def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        try:
            deadline = time.monotonic() + call.timeout_s
            response = self.exchange(self._protocol.request(call), deadline)
            return self._protocol.answer(call, response)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._protocol.translate(call, error) from error

    def exchange(self, request: Sequence[Part], deadline: float) -> HttpResponse:
        """Send a request and wait for the response.

        Args:
            request: Its parts, in order.
            deadline: In :func:`time.monotonic` seconds; may be infinite.

        Raises:
            TimeoutError: The deadline has passed.
            OSError: The connection could not be made, or ended early.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.feed`.
        """
        connection, self._connection = self._connection, None
        if connection is None or not connection.is_usable():
            if connection is not None:
                connection.close()
            connection = BlockingConnection(self._url, self._tls, deadline, self._max_response_bytes)
        try:
            response = connection.exchange(request, deadline)
        except BaseException:
            connection.close()  # the next request must not receive this response
            raise
        self._connection = connection
        return response

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class BlockingConnection:
    """One HTTP/1.1 connection on a blocking socket, for one thread at a time.

    Args:
        url: The server.
        tls: None does not encrypt.
        deadline: For connecting, in :func:`time.monotonic` seconds; may be infinite.
        max_response_bytes: As of :class:`ResponseReader`.

    Raises:
        TimeoutError: The deadline has passed.
        OSError: The connection could not be made.
    """

    def __init__(
        self, url: TritonUrl, tls: ssl.SSLContext | None, deadline: float, max_response_bytes: int | None = None
    ) -> None:
        host = url.hostname.strip("[]")
        self._socket = _connected(host, url.port, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket.settimeout(_left_s(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise
        # Unlike select(), poll() also takes descriptors above 1,023.
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._reader = ResponseReader(max_response_bytes)
        self._in_step = True
        forks.register(self)

    def __del__(self) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child, leave the connection to the parent: the next request makes a new one."""
        self._in_step = False
        forks.abandon(self._socket.fileno())

    def is_usable(self) -> bool:
        """Whether another request can be sent: the server has neither closed the connection nor sent more bytes."""
        return self._in_step and self._reader.keeps_alive and not self._readable.poll(0)

    def exchange(self, request: Sequence[Part], deadline: float) -> HttpResponse:
        """Send a request and wait for the response; after any error, only :meth:`close` is allowed.

        Arguments and errors are those of :meth:`HttpTransport.exchange`.
        """
        joined = len(request) == 1 or sum(map(len, request)) <= _JOINED_BYTES
        for part in (b"".join(request),) if joined else request:
            self._socket.settimeout(_left_s(deadline))
            self._socket.sendall(part)
        while True:
            self._socket.settimeout(_left_s(deadline))
            data = self._socket.recv(_RECEIVED_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            if responses := self._reader.feed(data):
                self._in_step = len(responses) == 1
                return responses[0]

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if hasattr(self, "_socket"):  # there is none if connecting failed
            self._socket.close()


def _left_s(deadline: float) -> float | None:
    """Seconds until a deadline, as sockets want them."""
    if math.isinf(deadline):
        return None
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    error: OSError | None = None
    for family, kind, protocol, _, address in _resolved(host, port, deadline):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left_s(deadline))
            connection.connect(address)
        except BaseException as failure:
            connection.close()
            if not isinstance(failure, OSError) or isinstance(failure, TimeoutError):
                raise
            error = failure
        else:
            return connection
    assert error is not None
    raise error


def _resolved(host: str, port: int, deadline: float) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    # The system's resolver has timeouts of many seconds. A thread of its own lets this one keep the deadline.
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    try:
        threading.Thread(target=resolve, name="pytriton-resolve", daemon=True).start()
    except RuntimeError:  # an interpreter that is exiting starts no threads
        resolve()
    try:
        answer = answers.get(timeout=_left_s(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


class AsyncHttpTransport(AsyncNetworkTransport):
    """HTTP over kept-alive connections, one for each call under way. aiohttp would take half of the time of a call.

    The arguments are those of :class:`HttpTransport`.
    """

    _protocol: HttpProtocol

    def __init__(
        self, url: TritonUrl, headers: Mapping[str, str], tls: Tls | None, max_response_bytes: int | None
    ) -> None:
        context = tls.context() if tls else None
        super().__init__(
            HttpProtocol(url, headers, secured=tls is not None),
            lambda: ConnectionPool(url, HTTP_CONNECTIONS, context, max_response_bytes),
        )

    async def _perform(self, connections: ConnectionPool, call: Call) -> Any:
        response = await connections.exchange(self._protocol.request(call), call.timeout_s)
        return self._protocol.answer(call, response)


class ConnectionPool:
    """Kept-alive connections in the running event loop; each request has one for as long as it takes.

    Args:
        url: The server.
        limit: Most connections; further requests wait.
        tls: None does not encrypt.
        max_response_bytes: As of :class:`ResponseReader`.
    """

    def __init__(
        self, url: TritonUrl, limit: int, tls: ssl.SSLContext | None, max_response_bytes: int | None = None
    ) -> None:
        self._host = url.hostname.strip("[]")
        self._port = url.port
        self._tls = tls
        self._max_response_bytes = max_response_bytes
        self._loop = asyncio.get_running_loop()
        self._free_places = limit
        self._idle: list[AsyncioConnection] = []
        self._open: set[AsyncioConnection] = set()
        self._waiting: deque[asyncio.Future[AsyncioConnection | None]] = deque()

    async def exchange(self, request: Sequence[Part], timeout_s: float = math.inf) -> HttpResponse:
        """Send a request and wait for the response.

        Args:
            request: Its parts, in order.
            timeout_s: Bounds waiting for a connection, connecting, sending and receiving together.

        Raises:
            TimeoutError: The time has passed.
            OSError: The connection could not be made, or ended early.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.feed`.
        """
        deadline = self._loop.time() + timeout_s
        connection = self._idle_connection()
        if connection is None:
            connection = await self._connection(timeout_s)
        try:
            return await connection.send(request, deadline)
        finally:
            self._release(connection)

    async def close(self) -> None:
        """End all connections; requests that wait for a response fail with ConnectionError."""
        self._idle.clear()
        for connection in [*self._open]:
            connection.abort()
        while self._open:
            await asyncio.sleep(0)

    def _idle_connection(self) -> AsyncioConnection | None:
        """A connection for a request, if one is idle; then no request waits for one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                self._free_places -= 1
                return connection
        return None

    async def _connection(self, timeout_s: float) -> AsyncioConnection:
        """A new connection for a request, or that of another request which has ended."""
        async with time_limit(timeout_s):
            connection = await self._place()
            if connection is not None and connection.is_usable():
                return connection
            try:
                _, connection = await self._loop.create_connection(
                    lambda: AsyncioConnection(self._open, self._max_response_bytes),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
            except BaseException:
                self._release(None)
                raise
            return connection

    async def _place(self) -> AsyncioConnection | None:
        """Wait until the request may have a connection; returns that of the request that ended, if it can be used."""
        if self._free_places:
            self._free_places -= 1
            return None
        ended: asyncio.Future[AsyncioConnection | None] = self._loop.create_future()
        self._waiting.append(ended)
        try:
            return await ended
        except asyncio.CancelledError:
            if not ended.cancelled():  # the place came at the same time
                self._release(ended.result())
            raise

    def _release(self, connection: AsyncioConnection | None) -> None:
        """Give the place of a request to the next one, with the connection, unless that must not be used again."""
        if connection is not None and not connection.is_usable():
            connection.abort()
            connection = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        self._free_places += 1
        if connection is not None:
            self._idle.append(connection)


class AsyncioConnection(asyncio.Protocol):
    """One HTTP/1.1 connection in the running event loop, for one request at a time.

    Args:
        open_connections: Holds the connection for as long as its socket is open.
        max_response_bytes: As of :class:`ResponseReader`.
    """

    def __init__(self, open_connections: set[AsyncioConnection], max_response_bytes: int | None = None) -> None:
        self._is_open = False
        self._open_connections = open_connections
        self._reader = ResponseReader(max_response_bytes)
        self._response: asyncio.Future[HttpResponse] | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = math.inf  # of the last request
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ends = math.inf

    def is_usable(self) -> bool:
        """Whether another request can be sent: the last one was answered, and the server keeps the connection."""
        return self._is_open and self._response is None

    def send(self, request: Sequence[Part], deadline: float = math.inf) -> asyncio.Future[HttpResponse]:
        """Send the parts of a request.

        Args:
            request: Its parts, in order.
            deadline: In seconds of the event loop; it ends the connection, too.

        Returns:
            Gets the response, TimeoutError, ConnectionError, or what :meth:`ResponseReader.feed` raises. Cancelling it
            does not end the connection.
        """
        response = self._response = self._loop.create_future()
        if self._is_open:
            self._deadline = deadline
            if deadline < self._timer_ends:
                self._set_timer(deadline)
            if sum(map(len, request)) <= _JOINED_BYTES:
                self._transport.write(b"".join(request))
            else:
                self._transport.writelines(request)
        else:
            self._fail(ConnectionError("the server closed the connection"))
        return response

    def abort(self) -> None:
        """End the connection; the event loop closes the socket in its next iteration."""
        self._is_open = False
        self._transport.abort()

    def _set_timer(self, moment: float) -> None:
        # Most requests have a later deadline than the one before, and end long before it: a timer for each would cost
        # more than one that looks again when it ends.
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ends = self._loop.call_at(moment, self._on_timer), moment

    # Callbacks of the event loop:

    def connection_made(self, transport: Any) -> None:
        """The connection is there."""
        self._transport = transport
        self._is_open = True
        self._open_connections.add(self)
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the connection to the parent."""
        self._is_open = False
        self._open_connections.discard(self)
        forks.abandon(self._transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        """A piece of the response, or bytes that no request asked for."""
        if self._response is None:
            self.abort()
            return
        try:
            responses = self._reader.feed(data)
        except (ConnectionError, PyTritonClientError) as error:
            self._fail(error)
            self.abort()
            return
        for response in responses:
            self._complete(response)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._is_open = False
        self._fail(ConnectionError(f"the server closed the connection{f': {error}' if error else ''}"))
        self._open_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer, self._timer_ends = None, math.inf
        if self._response is None:
            return
        if self._deadline > self._loop.time():
            self._set_timer(self._deadline)
        else:
            self._fail(TimeoutError())
            self.abort()

    def _complete(self, response: HttpResponse) -> None:
        waiting, self._response = self._response, None
        if waiting is None or not self._reader.keeps_alive:
            self.abort()  # no request asked for it, or the server closes the connection
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    def _fail(self, error: OSError | PyTritonClientError) -> None:
        waiting, self._response = self._response, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
            waiting.exception()  # asyncio must not complain if the waiting task was cancelled
