"""Requests and responses of HTTP/1.1 as bytes, wherever they travel."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError
from pytriton.client.url import TritonUrl

__all__ = ["HttpResponse", "RequestWriter", "ResponseReader"]

MOST_HEAD_BYTES = 2**18
"""Of one response, interim responses included: a server's headers have some hundreds."""

_LONGEST_REFUSAL = 1000
_LINES = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\x20-\x7e]*\r\n)*")
_URI = re.compile(r"[\x21-\x7e]*")
_ENCODINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


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
        body: Complete, and not compressed any more.
        headers: Of the response.
    """

    status: int
    body: bytes
    headers: Headers = field(default_factory=Headers)

    def refusal(self) -> str:
        """What the server says is wrong: the text ``error`` of its JSON, or what there is instead."""
        try:
            text = json.loads(self.body)["error"]
            if isinstance(text, str):
                return text
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        return f"status {self.status}: {self.body[:_LONGEST_REFUSAL].decode('utf-8', 'replace') or 'no more is said'}"

    def understood(self) -> bytes:
        """The body, or if it tells of an error, the only form of it that tritonclient understands."""
        return self.body if self.status == 200 else json.dumps({"error": self.refusal()}).encode()


class RequestWriter:
    """Writes the heads of requests to one server, and is the last to see that each is one head.

    Args:
        url: The server.
    """

    def __init__(self, url: TritonUrl) -> None:
        self._path = url.path.encode("ascii")
        self._host = b"\r\nHost: %b:%d\r\n" % (url.hostname.encode("idna"), url.port)
        self._checked_uri = ""
        self._checked_headers = ("", 0)

    def head(self, method: bytes, uri: str, headers: Mapping[str, object], length: int) -> bytes:
        """Request line and headers, with the empty line at their end.

        Args:
            method: Such as ``b"POST"``.
            uri: Below the server's path, without a slash at its beginning; quoted.
            headers: Without Host and Content-Length.
            length: Of the body, in bytes.

        Raises:
            PyTritonClientValueError: The URI or a header has a character, such as a line end, that would make
                something else of the request.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        # Most heads are like the one before.
        if uri != self._checked_uri:
            if not _URI.fullmatch(uri):
                raise PyTritonClientValueError(f"the request's path {uri!r} is not quoted; check names and versions")
            self._checked_uri = uri
        if (lines, len(headers)) != self._checked_headers:
            # Each header is one line: a line end within a value would make two.
            if lines.count("\n") != len(headers) or not _LINES.fullmatch(lines):
                raise PyTritonClientValueError(
                    f"one of the headers {', '.join(map(repr, headers))} cannot be sent: names have letters, digits "
                    "and '-', and values printable ASCII"
                )
            self._checked_headers = lines, len(headers)
        return b"%b %b/%b HTTP/1.1%b%bContent-Length: %d\r\n\r\n" % (
            method, self._path, uri.encode("ascii"), self._host, lines.encode("ascii"), length
        )  # fmt: skip


class ResponseReader:
    """Puts the responses of one connection together from the pieces in which they come.

    Args:
        limit: Most bytes of a response, as it travels and after decompression; None for any number.

    Attributes:
        keeps_alive: Whether the server takes another request after the last response.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.keeps_alive = True
        self._limit = limit
        self._parser = HttpResponseParser(self)
        self._received = 0  # of the response that comes
        self._has_head = False
        self._headers = Headers()
        self._body: list[bytes] = []
        self._complete: list[HttpResponse] = []

    def feed(self, data: bytes) -> list[HttpResponse]:
        """Take what has come; returns the responses that it completes. After an error, the connection is of no use.

        Raises:
            ConnectionError: It is something else than HTTP.
            PyTritonClientInferenceServerError: A response is too long, or not compressed as it says.
        """
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if error.__context__ is not None and not isinstance(error.__context__, Exception):
                raise error.__context__ from None  # Ctrl+C, while the parser called us
            raise ConnectionError(f"the server does not speak HTTP: {error}") from error
        if not self._complete:
            self._check_growth()
            return []
        complete, self._complete, self._received = self._complete, [], 0
        for response in complete:
            if self._limit is not None and len(response.body) > self._limit:
                raise self._too_long()
            if "content-encoding" in response.headers:
                response.body = _decompressed(response, self._limit, self._too_long)
        return complete

    def _check_growth(self) -> None:
        """Look whether the response that is still coming is too long already, or says that it will be."""
        if not self._has_head:
            if self._received > MOST_HEAD_BYTES:
                raise PyTritonClientInferenceServerError(
                    f"the server's headers have more than {MOST_HEAD_BYTES} bytes; the connection was closed"
                )
        elif self._limit is not None:
            declared = int(self._headers.get("content-length", "0"))  # the parser has read it as a number
            if declared > self._limit or self._received > self._limit + MOST_HEAD_BYTES:
                raise self._too_long()

    def _too_long(self) -> PyTritonClientInferenceServerError:
        return PyTritonClientInferenceServerError(
            f"the server's response is longer than max_response_bytes, {self._limit}; the connection was closed. If "
            "the model may answer so, make the client with a higher limit, or None"
        )

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete."""
        if not self._has_head:  # else one after the body, which is none of those that were waited for
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are complete."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The response is complete."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, Headers()
        body, self._body = b"".join(self._body), []
        self._has_head = False
        if status >= 200:  # else an interim response
            self.keeps_alive = self._parser.should_keep_alive()
            self._complete.append(HttpResponse(status, body, headers))


def _decompressed(response: HttpResponse, limit: int | None, too_long: Callable[[], Exception]) -> bytes:
    """The body of a response, as it was before it was compressed."""
    encoding = response.headers["content-encoding"].strip().lower()
    if encoding == "identity" or not response.body:
        return response.body
    if encoding not in _ENCODINGS:
        raise PyTritonClientInferenceServerError(
            f"the server's response has the encoding {encoding!r:.100}; a client understands gzip and deflate"
        )
    stream = zlib.decompressobj(_ENCODINGS[encoding])
    try:
        # One byte more than allowed tells that there are more; 0 would be no limit.
        body = stream.decompress(response.body, 0 if limit is None else min(limit, sys.maxsize - 1) + 1)
    except zlib.error as error:
        raise _not_compressed(encoding, str(error)) from error
    if limit is not None and len(body) > limit:
        raise too_long()
    if not stream.eof or stream.unused_data:
        raise _not_compressed(encoding, "it is cut short" if not stream.eof else "it goes on after its end")
    return body


def _not_compressed(encoding: str, reason: str) -> PyTritonClientInferenceServerError:
    return PyTritonClientInferenceServerError(f"the server's response cannot be decompressed by {encoding}: {reason}")
