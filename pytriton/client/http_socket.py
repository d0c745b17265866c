"""One HTTP/1.1 connection on a blocking socket, for one thread at a time."""

from __future__ import annotations

import math
import queue
import select
import socket
import ssl
import threading
import time
from typing import Any

from pytriton import forks
from pytriton.client.http_message import HttpResponse, ResponseReader
from pytriton.client.url import TritonUrl

__all__ = ["HttpSocket"]

RECEIVED_BYTES = 2**16
JOINED_BYTES = 2**16
"""Up to this size, copying a body behind its head costs less than sending it by itself."""


class HttpSocket:
    """A connection to a server.

    Args:
        url: The server.
        tls: None does not encrypt.
        deadline: For connecting, in :func:`time.monotonic` seconds; may be infinite.
        max_response_bytes: As of :class:`ResponseReader`.

    Raises:
        TimeoutError: The deadline has come.
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
        # Unlike select(), it knows the sockets of programs with more than 1,024 files open.
        self._arrivals = select.poll()
        self._arrivals.register(self._socket, select.POLLIN)
        self._reader = ResponseReader(max_response_bytes)
        self._in_step = True
        forks.register(self)

    def __del__(self) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child, drop the connection, which the parent goes on with: the next request makes a new one."""
        self._in_step = False
        forks.abandon(self._socket.fileno())

    def is_usable(self) -> bool:
        """Whether another request can be sent: the server has neither hung up nor said what nobody asked for."""
        return self._in_step and self._reader.keeps_alive and not self._arrivals.poll(0)

    def exchange(self, head: bytes, body: bytes, deadline: float) -> HttpResponse:
        """Send a request and wait for the response. After any error, the connection can only be closed.

        Args:
            head: Request line and headers, with the empty line at their end.
            body: May be empty.
            deadline: In :func:`time.monotonic` seconds; may be infinite.

        Raises:
            TimeoutError: The deadline has come.
            OSError: The connection ended.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.feed`.
        """
        for part in (head + body,) if len(body) <= JOINED_BYTES else (head, body):
            self._socket.settimeout(_left_s(deadline))
            self._socket.sendall(part)
        while True:
            self._socket.settimeout(_left_s(deadline))
            data = self._socket.recv(RECEIVED_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            if responses := self._reader.feed(data):
                self._in_step = len(responses) == 1
                return responses[0]

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if hasattr(self, "_socket"):  # not so if connecting failed
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
    # The system's resolver has timeouts of its own, of many seconds: it is left behind when ours is over.
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    try:
        threading.Thread(target=resolve, name="pytriton-resolve", daemon=True).start()
    except RuntimeError:  # the interpreter is exiting, and starts no threads any more
        resolve()
    try:
        answer = answers.get(timeout=_left_s(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer
