"""HTTP connections of event loops, and the pool that keeps them for further requests."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any

from pytriton import forks
from pytriton.client.auth import TritonUrl
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.http_messages import HttpResponse, Part, ResponseReader, joined
from pytriton.client.transport import time_limit

__all__ = ["BACKLOG_POLL_S", "AsyncioConnection", "ConnectionPool"]

BACKLOG_POLL_S = 0.005
"""Until the next attempt to connect to a Unix socket on which too many clients connect at once."""

_MOST_WAITING_BYTES = 2**16  # of a stream, before the server has to wait
_WRITTEN_BYTES = 2**18  # at once: event loops copy what they cannot send yet


class ConnectionPool:
    """Kept-alive connections in the running event loop; each request has one for as long as it takes.

    A request takes a connection that is idle, or one of the places that are free, and connects. Without either it waits
    until another request ends, which gives it its place, and its connection if that can be used again.

    Args:
        limit: Most connections; further requests wait.
        tls: None does not encrypt.
    """

    def __init__(
        self, url: TritonUrl, limit: int, tls: ssl.SSLContext | None, max_response_bytes: int | None = None
    ) -> None:
        self._url = url
        self._tls = tls
        self._max_response_bytes = max_response_bytes
        self._loop = asyncio.get_running_loop()
        self._free_places = limit
        self._idle: list[AsyncioConnection] = []  # empty while requests wait
        self._open: set[AsyncioConnection] = set()
        self._waiting: deque[asyncio.Future[AsyncioConnection | None]] = deque()
        self._is_closed = False

    async def exchange(self, request: Sequence[Part], timeout_s: float = math.inf) -> HttpResponse:
        """Send a request and wait for the response.

        Args:
            timeout_s: Bounds waiting for a connection, connecting, sending and receiving together.

        Raises:
            TimeoutError: The time has passed; in Python 3.10, it may be that of asyncio.
            OSError: The connection could not be made, or ended early.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.received`.
        """
        deadline = self._loop.time() + timeout_s
        connection = self._idle_connection()
        if connection is None:
            connection = await self._awaited_connection(timeout_s)
        try:
            return await connection.send(request, deadline)
        finally:
            self._release(connection)

    async def stream(
        self, request: Sequence[Part], timeout_s: float = math.inf
    ) -> AsyncGenerator[bytes | HttpResponse, None]:
        """Send a request, and yield the body of the response in pieces, as they come; at last the response without it.

        If the status is not 200, the response has the body. Closing the generator ends the connection, unless it has
        yielded the response.

        Args:
            timeout_s: Bounds the wait for a connection, and that for each piece.

        Raises:
            TimeoutError: As :meth:`exchange`, and the other errors too.
        """
        connection = self._idle_connection() or await self._awaited_connection(timeout_s)
        pieces = _Pieces(connection)
        try:
            response = connection.send(request, self._loop.time() + timeout_s, pieces.put)
            response.add_done_callback(lambda _: pieces.arrived.set())
            while True:
                await pieces.arrived.wait()
                is_complete = response.done()
                if piece := pieces.take():
                    connection.limit(math.inf)  # the time that the caller takes is not the server's
                    yield piece
                    connection.limit(self._loop.time() + timeout_s)
                if is_complete:
                    yield response.result()
                    return
        finally:
            self._release(connection)

    async def close(self) -> None:
        """End all connections; requests that wait for a response or a connection fail with ConnectionError."""
        self._is_closed = True
        self._idle.clear()
        for connection in [*self._open]:
            connection.abort()
        while self._open:
            await asyncio.sleep(0)

    def _idle_connection(self) -> AsyncioConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                self._free_places -= 1
                return connection
        return None

    async def _awaited_connection(self, timeout_s: float) -> AsyncioConnection:
        """A new connection, or that of a request which has ended; whoever gets it has to release it."""
        async with time_limit(timeout_s):
            connection = await self._place()
            try:
                if connection is None or not connection.is_usable():
                    connection = await self._connected()
                if self._is_closed:
                    connection.abort()
                    raise ConnectionError("the client was closed")
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
            if ended.cancelled():
                with suppress(ValueError):  # a request has ended since, and has passed it over
                    self._waiting.remove(ended)
            else:  # the place came at the same time
                self._release(ended.result())
            raise

    async def _connected(self) -> AsyncioConnection:
        host = self._url.hostname.strip("[]")
        tls: dict[str, Any] = {"ssl": self._tls, "server_hostname": host if self._tls else None}
        connection = AsyncioConnection(self._open, self._max_response_bytes)
        try:
            if self._url.socket:
                connected = await _connected_to_path(self._url.socket)
                await self._loop.create_unix_connection(lambda: connection, sock=connected, **tls)
            else:
                await self._loop.create_connection(lambda: connection, host, self._url.port, **tls)
        except BaseException:
            self._open.discard(connection)  # uvloop closes it without telling it
            raise
        return connection

    def _release(self, connection: AsyncioConnection | None) -> None:
        """Give the place of a request to the next one, with the connection, unless that must not be used again."""
        if connection is not None and not connection.is_usable():
            connection.abort()  # the next request must not receive this response
            connection = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        self._free_places += 1
        if connection is not None:
            self._idle.append(connection)


async def _connected_to_path(path: str) -> socket.socket:
    """A socket that is connected. Event loops take one for connected when too many clients connect at once."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        while True:
            try:
                connection.connect(path)
                return connection
            except BlockingIOError:
                await asyncio.sleep(BACKLOG_POLL_S)
    except BaseException:
        connection.close()
        raise


class _Pieces:
    """What has come of the body of a response, and is not taken yet.

    Args:
        connection: Receives nothing while there is too much.

    Attributes:
        arrived: Set when there is something, or when the response is complete.
    """

    def __init__(self, connection: AsyncioConnection) -> None:
        self.arrived = asyncio.Event()
        self._connection = connection
        self._pieces: list[bytes] = []
        self._bytes = 0

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)
        self.arrived.set()
        if self._bytes > _MOST_WAITING_BYTES:
            self._connection.pause()

    def take(self) -> bytes:
        self.arrived.clear()
        if self._bytes > _MOST_WAITING_BYTES:
            self._connection.resume()
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        return piece


class AsyncioConnection(asyncio.BufferedProtocol):
    """One HTTP/1.1 connection in the running event loop, for one request at a time.

    Args:
        open_connections: Holds the connection for as long as its socket is open.
    """

    def __init__(self, open_connections: set[AsyncioConnection], max_response_bytes: int | None = None) -> None:
        self._is_open = False
        self._open_connections = open_connections
        self._reader = ResponseReader(max_response_bytes)
        self._response: asyncio.Future[HttpResponse] | None = None
        self._unsent: deque[Part] = deque()
        self._takes_more = True
        self._loop = asyncio.get_running_loop()
        self._deadline = math.inf  # of the last request
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ends = math.inf

    def is_usable(self) -> bool:
        """Whether another request can be sent: the last one was answered, and the server keeps the connection."""
        return self._is_open and self._response is None

    def send(
        self,
        request: Sequence[Part],
        deadline: float = math.inf,
        receive: Callable[[bytes], None] | None = None,
    ) -> asyncio.Future[HttpResponse]:
        """Send the parts of a request.

        Args:
            deadline: In seconds of the event loop; it ends the connection, too.
            receive: As that of :class:`ResponseReader`.

        Returns:
            Gets the response, TimeoutError, ConnectionError, or what :meth:`ResponseReader.received` raises. Cancelling
            it does not end the connection.
        """
        response = self._response = self._loop.create_future()
        if self._is_open:
            self._reader.receive = receive
            self.limit(deadline)
            self._unsent.extend(joined(request))
            self._write()
        else:
            self._fail(ConnectionError("the server closed the connection"))
        return response

    def _write(self) -> None:
        while self._unsent and self._takes_more and not self._transport.is_closing():
            part = self._unsent.popleft()
            if len(part) > _WRITTEN_BYTES:
                self._unsent.appendleft(memoryview(part)[_WRITTEN_BYTES:])
                part = memoryview(part)[:_WRITTEN_BYTES]
            self._transport.write(part)

    def limit(self, deadline: float) -> None:
        """Give the request another deadline, in seconds of the event loop."""
        self._deadline = deadline
        if deadline < self._timer_ends:
            self._set_timer(deadline)

    def pause(self) -> None:
        """Receive nothing more, so that the server waits, until :meth:`resume`."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Receive again."""
        self._transport.resume_reading()

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
        if (connected := self._transport.get_extra_info("socket")) is not None:  # it has not ended yet
            forks.abandon(connected.fileno())

    def pause_writing(self) -> None:
        """The event loop keeps enough that cannot be sent yet."""
        self._takes_more = False

    def resume_writing(self) -> None:
        """It takes more."""
        self._takes_more = True
        self._write()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put the bytes that come next."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """A piece of the response has come, or bytes that no request asked for."""
        if self._response is None:
            self.abort()
            return
        try:
            responses = self._reader.received(nbytes)
        except (ConnectionError, PyTritonClientError) as error:
            self._fail(error)
            self.abort()
            return
        for response in responses:
            self._complete(response)

    def eof_received(self) -> None:
        """The server sends no more, so that the event loop closes the connection."""
        self._is_open = False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._is_open = False
        self._unsent.clear()  # which refers to the caller's arrays
        self._fail(ConnectionError(f"the server closed the connection{f': {error}' if error else ''}"))
        self._open_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer, self._timer_ends = None, math.inf
        if self._response is None or math.isinf(self._deadline):
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
