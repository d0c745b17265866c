"""HTTP/1.1 messages as bytes, without sockets: the heads of requests, and responses from what was received."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import OtherProgramError
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError

__all__ = ["HttpResponse", "Part", "RequestWriter", "ResponseReader", "joined"]

MOST_HEAD_BYTES = 2**18
"""Limit for the headers of one response, interim responses included; Triton's have some hundreds."""

Part = bytes | memoryview

_JOINED_BYTES = 2**16
_PIECE_BYTES = 2**14
_LONGEST_REFUSAL = 1000
_LINES = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\x20-\x7e]*\r\n)*")
_URI = re.compile(r"[\x21-\x7e]*")
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


def joined(request: Sequence[Part]) -> Sequence[Part]:
    """The parts of a request; of a small one, one part: a copy costs less than a system call for each part."""
    return (b"".join(request),) if sum(map(len, request)) <= _JOINED_BYTES else request


class Headers(dict[str, str]):
    """The values of headers by lower-case name."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header in any letter case."""
        return super().get(name.lower(), default)


@dataclass
class HttpResponse:
    """A complete response.

    Args:
        status: E.g. 200.
        body: Decompressed. Of status 200, it may be a view that cannot be written to.
    """

    status: int
    body: bytes | memoryview
    headers: Headers = field(default_factory=Headers)

    def refusal(self) -> str:
        """The text ``error`` of the JSON of an error response, else its status and body."""
        try:
            text = json.loads(bytes(self.body))["error"]
            if isinstance(text, str):
                return text
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        return f"status {self.status}: {str(self.body[:_LONGEST_REFUSAL], 'utf-8', 'replace') or 'no more is said'}"


class RequestWriter:
    """Writes the heads of requests to one server, and checks that each is one head and no more."""

    def __init__(self, url: TritonUrl) -> None:
        self._path = url.path.encode("ascii")
        self._host = b"\r\nHost: %b:%d\r\n" % (url.hostname.encode("idna"), url.port)
        self._last: tuple[tuple[object, ...], bytes] = (), b""

    def head(self, method: bytes, uri: str, headers: Mapping[str, object], length: int) -> bytes:
        """Request line and headers, with the empty line at their end.

        Args:
            method: Such as ``b"POST"``.
            uri: Below the server's path, without a slash at its beginning; quoted.
            headers: Without Host and Content-Length.

        Raises:
            PyTritonClientValueError: The URI or a header has a character that it cannot have, such as a line end.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        wanted = method, uri, lines, len(headers), length
        known, head = self._last
        if wanted == known:  # most requests have the head of the one before
            return head
        if not _URI.fullmatch(uri):
            raise PyTritonClientValueError(f"the request's path {uri!r} is not quoted; check names and versions")
        # A line end within a value would make two headers of one.
        if lines.count("\n") != len(headers) or not _LINES.fullmatch(lines):
            raise PyTritonClientValueError(
                f"one of the headers {', '.join(map(repr, headers))} cannot be sent: names have letters, digits "
                "and '-', and values printable ASCII"
            )
        head = b"%b %b/%b HTTP/1.1%b%bContent-Length: %d\r\n\r\n" % (
            method, self._path, uri.encode("ascii"), self._host, lines.encode("ascii"), length
        )  # fmt: skip
        self._last = wanted, head
        return head


class ResponseReader:
    """Assembles the responses of one connection from the pieces that it receives.

    They are received into :meth:`buffer`. A body that does not come with its head is received where it stays.

    Args:
        limit: Most bytes of a response, as it travels and after decompression; None for no limit.

    Attributes:
        keeps_alive: Whether the server takes another request after the last response.
        receive: Is given the body of a response with status 200 in pieces, as they come, without a limit; the response
            then has no body. None leaves it to the response.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.keeps_alive = True
        self.receive: Callable[[bytes], None] | None = None
        self._limit = limit
        self._parser = HttpResponseParser(self)
        self._received = 0  # bytes of the response that is not complete yet
        self._has_head = False
        self._headers = Headers()
        self._body: list[bytes] = []
        self._complete: list[HttpResponse] = []
        self._pieces = memoryview(bytearray(_PIECE_BYTES))
        self._place: memoryview | None = None  # of the body whose rest is received without the parser
        self._rest = self._pieces[:0]  # of that place

    def buffer(self) -> memoryview:
        """Where to put the bytes that come next; it is not empty."""
        return self._rest or self._pieces

    def received(self, count: int) -> list[HttpResponse]:
        """Take the first bytes of :meth:`buffer`, and return the responses that they complete.

        After an error, close the connection.

        Raises:
            OtherProgramError: The bytes are not HTTP.
            PyTritonClientInferenceServerError: A response is too long, or not compressed as its headers say.
        """
        if self._place is None:
            return self._parse(self._pieces[:count])
        self._rest = self._rest[count:]
        if self._rest:
            return []
        response = HttpResponse(200, self._place.toreadonly(), self._headers)
        self.keeps_alive = self._parser.should_keep_alive()
        self._parser, self._headers, self._has_head, self._place = HttpResponseParser(self), Headers(), False, None
        return self._finished([response])

    def _parse(self, data: memoryview) -> list[HttpResponse]:
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if error.__context__ is not None and not isinstance(error.__context__, Exception):
                raise error.__context__ from None  # Ctrl+C in a callback of the parser
            raise OtherProgramError(
                f"the server does not speak HTTP: {error}. If this is the port of gRPC, the URL begins with grpc://"
            ) from error
        if not self._complete:
            self._check_growth()
            self._set_place()
            return []
        complete, self._complete = self._complete, []
        return self._finished(complete)

    def _set_place(self) -> None:
        """Have the rest of a body whose length is known received where it stays."""
        length = int(self._headers.get("content-length", "0")) if self._has_head else 0
        if not length or self.receive is not None or self._parser.get_status_code() != 200:
            return
        came = b"".join(self._body)
        try:
            self._place, self._body = np.empty(length, np.uint8).data, []
        except (MemoryError, ValueError) as error:
            raise PyTritonClientInferenceServerError(
                f"the server's response of {length} bytes does not fit into this process's memory"
            ) from error
        self._place[: len(came)] = came
        self._rest = self._place[len(came) :]

    def _finished(self, complete: list[HttpResponse]) -> list[HttpResponse]:
        self._received = 0
        for response in complete:
            if self._limit is not None and len(response.body) > self._limit:
                raise self._too_long()
            if "content-encoding" in response.headers:
                response.body = _decompressed(response, self._limit, self._too_long)
        return complete

    def _check_growth(self) -> None:
        """Check the length, or the announced length, of the response that is not complete yet."""
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

    # Callbacks of the parser:

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete."""
        if not self._has_head:  # ignore trailers
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are complete."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body was received."""
        if self.receive is not None and self._parser.get_status_code() == 200:
            self._received = 0
            self.receive(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The response is complete."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, Headers()
        body, self._body = b"".join(self._body), []
        self._has_head = False
        if status >= 200:  # ignore interim responses
            self.keeps_alive = self._parser.should_keep_alive()
            self._complete.append(HttpResponse(status, body, headers))


def _decompressed(response: HttpResponse, limit: int | None, too_long: Callable[[], Exception]) -> bytes | memoryview:
    """The decompressed body of a response."""
    encoding = response.headers["content-encoding"].strip().lower()
    if encoding == "identity" or not response.body:
        return response.body
    if encoding not in _WINDOW_BITS:
        raise PyTritonClientInferenceServerError(
            f"the server's response has the encoding {encoding!r:.100}; a client understands gzip and deflate"
        )
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        # One byte beyond the limit shows that there are more; 0 would be no limit.
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
