"""Requests and responses of HTTP/1.1 as bytes, wherever they travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from httptools import HttpParserError, HttpResponseParser

from pytriton.client.url import TritonUrl

__all__ = ["HttpResponse", "RequestWriter", "ResponseReader"]


class Headers(dict[str, str]):
    """Values by lower-case name."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header in any letter case."""
        return super().get(name.lower(), default)


@dataclass
class HttpResponse:
    """What the server answered.

    Args:
        status: E.g. 200.
        body: Complete, encoded as the headers say.
        headers: Of the response.
    """

    status: int
    body: bytes
    headers: Headers = field(default_factory=Headers)


class RequestWriter:
    """Writes the heads of requests to one server.

    Args:
        url: The server.
    """

    def __init__(self, url: TritonUrl) -> None:
        self._path = url.path.encode()
        self._host = f"\r\nHost: {url.hostname}:{url.port}\r\n".encode()

    def head(self, method: bytes, uri: str, headers: Mapping[str, object], length: int) -> bytes:
        """Request line and headers, with the empty line at their end.

        Args:
            method: Such as ``b"POST"``.
            uri: Below the server's path, without a slash at its beginning; quoted.
            headers: Without Host and Content-Length. Names and values have been checked.
            length: Of the body, in bytes.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return b"%b %b/%b HTTP/1.1%b%bContent-Length: %d\r\n\r\n" % (
            method, self._path, uri.encode("ascii"), self._host, lines.encode("latin-1"), length
        )  # fmt: skip


class ResponseReader:
    """Puts the responses of one connection together from the pieces in which they come.

    Attributes:
        keeps_alive: Whether the server takes another request after the last response.
    """

    def __init__(self) -> None:
        self.keeps_alive = True
        self._parser = HttpResponseParser(self)
        self._headers = Headers()
        self._body: list[bytes] = []
        self._complete: list[HttpResponse] = []

    def feed(self, data: bytes) -> list[HttpResponse]:
        """Take what has come; returns the responses that it completes.

        Raises:
            ConnectionError: It is something else than HTTP.
        """
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if error.__context__ is not None and not isinstance(error.__context__, Exception):
                raise error.__context__ from None  # Ctrl+C, while the parser called us
            raise ConnectionError(f"the server does not speak HTTP: {error}") from error
        complete, self._complete = self._complete, []
        return complete

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
        if status >= 200:  # else an interim response
            self.keeps_alive = self._parser.should_keep_alive()
            self._complete.append(HttpResponse(status, body, headers))
