"""One HTTP/1.1 connection in an event loop, for one request at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from pytriton import forks
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.http_message import HttpResponse, ResponseReader

__all__ = ["HttpConnection"]


class HttpConnection(asyncio.Protocol):
    """Sends a request and receives the response to it.

    Args:
        open_ones: Where the connection is to be found for as long as its socket is open.
        max_response_bytes: As of :class:`ResponseReader`.

    Attributes:
        is_open: Whether another request can be sent.
    """

    def __init__(self, open_ones: set[HttpConnection], max_response_bytes: int | None = None) -> None:
        self.is_open = False
        self._open_ones = open_ones
        self._reader = ResponseReader(max_response_bytes)
        self._response: asyncio.Future[HttpResponse] | None = None

    def send(self, head: bytes, body: bytes) -> asyncio.Future[HttpResponse]:
        """Send a request; the future has the response, or what :meth:`ResponseReader.feed` raises.

        Cancelling the future does not end the connection.

        Args:
            head: Request line and headers, with the empty line at their end.
            body: May be empty.
        """
        self._response = asyncio.get_running_loop().create_future()
        if not self.is_open:
            self._fail(ConnectionError("the server closed the connection"))
        else:
            self._transport.writelines((head, body))
        return self._response

    def abort(self) -> None:
        """End the connection; the event loop closes the socket in its next turn."""
        self.is_open = False
        self._transport.abort()

    # What the event loop calls:

    def connection_made(self, transport: Any) -> None:
        """The connection is there."""
        self._transport = transport
        self.is_open = True
        self._open_ones.add(self)
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, drop the connection, which the parent goes on with."""
        self.is_open = False
        self._open_ones.discard(self)
        forks.abandon(self._transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        """Something of the response has come, or something that nobody asked for."""
        if self._response is None:
            self.abort()
            return
        try:
            responses = self._reader.feed(data)
        except (ConnectionError, PyTritonClientError) as error:
            self._fail(error)
            self.abort()
            return
        for answer in responses:
            self._take(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self.is_open = False
        self._fail(ConnectionError(f"the server closed the connection{f': {error}' if error else ''}"))
        self._open_ones.discard(self)

    def _take(self, answer: HttpResponse) -> None:
        self.is_open = self._reader.keeps_alive and self.is_open
        response, self._response = self._response, None
        if response is None:
            self.abort()  # nobody asked for it
        elif not response.done():
            response.set_result(answer)

    def _fail(self, error: ConnectionError | PyTritonClientError) -> None:
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_exception(error)
            response.exception()  # so that asyncio does not complain if whoever waits is cancelled before he sees it
