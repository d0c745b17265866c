"""One HTTP/1.1 connection in an event loop, for one request at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from httptools import HttpParserError, HttpResponseParser

__all__ = ["HttpConnection", "HttpResponse"]


class Headers(dict[str, str]):
    """Values by lower-case name."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header in any letter case."""
        return super().get(name.lower(), default)


@dataclass
class HttpResponse:
    """What the server answered, as tritonclient's clients for asyncio look at it.

    Args:
        status: E.g. 200.
        headers: Of the response.
        body: Complete, encoded as the headers say.
    """

    status: int
    body: bytes
    headers: Headers = field(default_factory=Headers)

    async def read(self) -> bytes:
        """The body."""
        return self.body


class HttpConnection(asyncio.Protocol):
    """Sends a request and receives the response to it.

    Args:
        open_ones: Where the connection is to be found for as long as its socket is open.

    Attributes:
        is_open: Whether another request can be sent.
    """

    def __init__(self, open_ones: set[HttpConnection]) -> None:
        self.is_open = False
        self._open_ones = open_ones
        self._parser = HttpResponseParser(self)
        self._headers = Headers()
        self._body: list[bytes] = []
        self._response: asyncio.Future[HttpResponse] | None = None

    def send(self, head: bytes, body: bytes) -> asyncio.Future[HttpResponse]:
        """Send a request; the future has the response, or ConnectionError. Cancelling it does not end the connection.

        Args:
            head: Request line and headers, with the empty line at their end.
            body: May be empty.
        """
        self._response = asyncio.get_running_loop().create_future()
        if not self.is_open:
            self._fail("the server closed the connection")
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

    def data_received(self, data: bytes) -> None:
        """Something of the response has come, or something that nobody asked for."""
        if self._response is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(f"the server does not speak HTTP: {error}")
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self.is_open = False
        self._fail(f"the server closed the connection{f': {error}' if error else ''}")
        self._open_ones.discard(self)

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The response is complete."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, Headers()
        body, self._body = b"".join(self._body), []
        if status < 200:
            return  # an interim response
        self.is_open = self._parser.should_keep_alive() and self.is_open
        response, self._response = self._response, None
        if response is None:
            self.abort()  # nobody asked for it
        elif not response.done():
            response.set_result(HttpResponse(status, body, headers))

    def _fail(self, reason: str) -> None:
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_exception(ConnectionError(reason))
