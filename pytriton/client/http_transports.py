"""The transports of HTTP, and the connection of the blocking one. Those of event loops are in ``http_pool.py``."""

from __future__ import annotations

import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pytriton import forks
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.http_messages import HttpResponse, Part, ResponseReader, joined
from pytriton.client.http_pool import BACKLOG_POLL_S, ConnectionPool
from pytriton.client.http_protocol import HttpProtocol
from pytriton.client.tensors import InferResponse
from pytriton.client.transport import AsyncNetworkTransport, LoopConnection
from pytriton.exceptions import PyTritonError

__all__ = ["CHECK_S", "HTTP_CONNECTIONS", "AsyncHttpTransport", "BlockingConnection", "HttpTransport", "pause"]

HTTP_CONNECTIONS = 256
"""Further calls in one event loop wait, because the default limit of open files is 1,024."""

CHECK_S = 0.1
LONGEST_WAIT_S = 2**31 // 1000  # sockets wait a C integer of milliseconds


class HttpTransport:
    """A ``Transport`` over one kept-alive connection; from any thread, but one call at a time.

    gevent, which tritonclient uses, keeps two files open for each thread that has ever called it. In a process with
    more than 1,024 open files it makes a new connection for each call.

    Args:
        tls: None does not encrypt.

    Attributes:
        check: Called several times a second while a response is waited for, if it is set; what it raises ends the call.
    """

    check: Callable[[], None] | None = None

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
        except PyTritonError:  # also what the check has raised
            raise
        except Exception as error:
            raise self._protocol.translate(call, error) from error

    def exchange(self, request: Sequence[Part], deadline: float) -> HttpResponse:
        """Send a request and wait for the response.

        Args:
            deadline: In :func:`time.monotonic` seconds; may be infinite.

        Raises:
            TimeoutError: The deadline has passed.
            OSError: The connection could not be made, or ended early.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.received`.
        """
        connection, self._connection = self._connection, None
        if connection is None or not connection.is_usable():
            if connection is not None:
                connection.close()
            connection = BlockingConnection(self._url, self._tls, deadline, self._max_response_bytes)
        try:
            response = connection.exchange(request, deadline, self.check)
        except BaseException:
            connection.close()  # the next request must not receive this response
            raise
        self._connection = connection
        return response

    def sleep(self, seconds: float) -> None:
        """Pause; what the check raises ends that."""
        pause(seconds, self.check)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class BlockingConnection:
    """One HTTP/1.1 connection on a blocking socket, for one thread at a time.

    Args:
        deadline: For connecting, in :func:`time.monotonic` seconds; may be infinite.

    Raises:
        TimeoutError: The deadline has passed.
        OSError: The connection could not be made.
    """

    def __init__(
        self, url: TritonUrl, tls: ssl.SSLContext | None, deadline: float, max_response_bytes: int | None = None
    ) -> None:
        host = url.hostname.strip("[]")
        self._socket = _connected_to_path(url.socket, deadline) if url.socket else _connected(host, url.port, deadline)
        try:
            if not url.socket:
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

    def exchange(
        self, request: Sequence[Part], deadline: float, check: Callable[[], None] | None = None
    ) -> HttpResponse:
        """Send a request and wait for the response; after any error, only :meth:`close` is allowed.

        Arguments and errors are those of :meth:`HttpTransport.exchange`, and of ``check`` there.
        """
        for part in joined(request):
            self._socket.settimeout(_left_s(deadline))
            self._socket.sendall(part)
        while True:
            left_s = _left_s(deadline)
            self._socket.settimeout(left_s if check is None else min(CHECK_S, left_s or CHECK_S))
            try:
                count = self._socket.recv_into(self._reader.buffer())
            except TimeoutError:
                if check is None:
                    raise
                check()
                continue
            if not count:
                raise ConnectionError("the server closed the connection")
            if responses := self._reader.received(count):
                self._in_step = len(responses) == 1
                return responses[0]

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if hasattr(self, "_socket"):  # there is none if connecting failed
            self._socket.close()


def pause(seconds: float, check: Callable[[], None] | None) -> None:
    """Sleep; what is called several times a second meanwhile may end that by an exception."""
    end = time.monotonic() + seconds
    while check is not None and time.monotonic() + CHECK_S < end:
        time.sleep(CHECK_S)
        check()
    time.sleep(max(0.0, end - time.monotonic()))


def _left_s(deadline: float) -> float | None:
    """Seconds until a deadline, as sockets want them: None if it is later than they can tell."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s if left_s < LONGEST_WAIT_S else None


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


def _connected_to_path(path: str, deadline: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        while True:
            connection.settimeout(_left_s(deadline))
            try:
                connection.connect(path)
                return connection
            except BlockingIOError:  # too many clients connect at once; unlike with TCP, the kernel lets none wait
                time.sleep(BACKLOG_POLL_S)
    except BaseException:
        connection.close()
        raise


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

    async def stream(self, call: Call) -> AsyncGenerator[InferResponse, None]:
        """Send a request, and yield the responses to it, whose outputs are texts: :meth:`HttpProtocol.stream_request`.

        The call's timeout bounds the wait for each response. Closing the generator cancels the request.

        Raises:
            PyTritonClientError: A response did not come in time, it is an error, or the connection failed.
        """
        connection: LoopConnection = await self._begin()
        rest = b""
        try:
            request = self._protocol.stream_request(call)
            async with aclosing(connection.connections.stream(request, call.timeout_s)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, HttpResponse):
                        self._protocol.end_stream(piece)
                        return
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        yield self._protocol.stream_answer(event)
        except PyTritonError:
            raise
        except Exception as error:
            raise self._failure(connection, call, error) from error
        finally:
            await self._end(connection)
