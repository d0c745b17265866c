"""The bodies of requests within limits, and which media types a request has and wants."""

from __future__ import annotations

import asyncio
import io
import sys
import tokenize
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.rest.costs import SMALL_BYTES, Charges
from pytriton.rest.errors import RestError
from pytriton.rest.waits import ClientDisconnectedError, PieceLimit, Receive

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = [
    "FORM",
    "JSON",
    "NDJSON",
    "NPY",
    "OCTETS",
    "SSE",
    "Headers",
    "accepted",
    "media_type",
    "read_body",
    "read_npy",
    "write_npy",
]

JSON, NDJSON, SSE = "application/json", "application/x-ndjson", "text/event-stream"
NPY, OCTETS, FORM = "application/x-npy", "application/octet-stream", "multipart/form-data"

# curl sends the first with -d, and pages of other origins may send the second without asking.
SENT_AS_JSON = {"", "application/x-www-form-urlencoded", "text/plain", "text/json", JSON}
SAME = {"application/ndjson": NDJSON, "application/jsonl": NDJSON, "application/npy": NPY, "application/x-numpy": NPY}
ANY = {"*/*", "application/*", "text/*"}
KNOWN = {JSON, NDJSON, SSE, NPY, OCTETS}
MAGIC = b"\x93NUMPY"
COMPRESSED = {b"gzip", b"x-gzip", b"deflate"}
SLICE_BYTES = 2**20  # of content that is inflated at a time
MOST_PIECES = 16  # of a compressed body in that time
MOST_REST_BYTES = 256 * 2**20
REST_TIMEOUT_S = 5.0

Headers = Mapping[bytes, bytes]


async def read_body(receive: Receive, headers: Headers, limit: int, timeout_s: float, charges: Charges) -> bytes:
    """All of a body, decompressed.

    Args:
        limit: In bytes, before and after decompression.
        timeout_s: As that of :class:`PieceLimit`.
        charges: Of the request, to which the body is charged as it comes.

    Raises:
        RestError: It is longer, there is no memory for it, cannot be decompressed, or did not come in time.
        ClientDisconnectedError: It did not come to its end.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > limit:
        # A client that asks before it sends (``Expect: 100-continue``) is told at once.
        raise _too_large(limit, has_ended=b"expect" not in headers and await _read_rest(receive))
    parts: list[bytes] = []
    size, more = 0, True
    pieces = PieceLimit(timeout_s)
    async with pieces:
        while more and size <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            part = message.get("body", b"")
            try:
                charges.charge(len(part))
            except RestError as error:
                parts.clear()
                raise await _with_rest_read(error, message, receive) from None
            parts.append(part)
            size, more = size + len(part), message.get("more_body", False)
            pieces.received(len(part))
    if size > limit:
        parts.clear()
        raise _too_large(limit, has_ended=not more or await _read_rest(receive))
    body = _joined(parts, size, charges)
    encoding = headers.get(b"content-encoding", b"").strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in COMPRESSED:
        text = (
            f"bodies that are encoded as {encoding.decode('latin-1')!r:.100} are not understood; send gzip or deflate"
        )
        raise RestError(415, "UNSUPPORTED_MEDIA_TYPE", text, headers={"Accept-Encoding": "gzip, deflate"})
    content = await _decompressed(body, limit, charges)
    charges.credit(len(body))
    return content


def _joined(parts: list[bytes], size: int, charges: Charges) -> bytes:
    """Pieces that were charged, as one; empties the list."""
    if len(parts) == 1:
        return parts[0]
    with charges.charged(size):
        joined = b"".join(parts)
        parts.clear()
        return joined


async def _decompressed(body: bytes, limit: int, charges: Charges) -> bytes:
    """The content of a body in the format of gzip or zlib, inflated in slices, between which others have turns."""
    inflation = _Inflation(body, limit)
    parts: list[bytes] = []
    size, slice_bytes = 0, SMALL_BYTES
    while not inflation.ended:
        with charges.charged(slice_bytes):  # before it is known how many they are
            part = await charges.run(max(size, len(body)), partial(inflation.slice, slice_bytes))
        charges.charge(len(part))
        parts.append(part)
        size, slice_bytes = size + len(part), SLICE_BYTES
    return _joined(parts, size, charges)


class _Inflation:
    """Inflates a body, a slice at a time.

    Args:
        body: In the format of gzip or zlib.
        limit: Of its content, in bytes.
    """

    def __init__(self, body: bytes, limit: int) -> None:
        self.ended = False
        self._body = memoryview(body)
        self._left = limit
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # which tells the two apart
        self._limit = limit

    def slice(self, size: int) -> bytes:
        """The next bytes of the content, so many or some less."""
        most = min(size, self._left + 1)
        inflater = self._inflater
        try:
            # In pieces: what is left over of each is copied.
            content = inflater.decompress(inflater.unconsumed_tail or self._next_piece(), most)
            for _ in range(MOST_PIECES):
                if len(content) > most // 2 or inflater.eof or not (inflater.unconsumed_tail or len(self._body)):
                    break
                content += inflater.decompress(inflater.unconsumed_tail or self._next_piece(), most - len(content))
        except zlib.error as error:
            raise RestError(400, "INVALID_REQUEST", f"the body cannot be decompressed: {error}") from error
        self._left -= len(content)
        if self._left < 0:
            raise _too_large(self._limit, has_ended=True)
        is_consumed = not inflater.unconsumed_tail and not len(self._body)
        if inflater.eof and (inflater.unused_data or len(self._body)):
            raise RestError(400, "INVALID_REQUEST", "the body has more bytes than its compressed content")
        if not inflater.eof and is_consumed and not content:
            raise RestError(400, "INVALID_REQUEST", "the body ends before its compressed content")
        self.ended = inflater.eof
        return content

    def _next_piece(self) -> memoryview:
        piece, self._body = self._body[:SMALL_BYTES], self._body[SMALL_BYTES:]
        return piece


def _too_large(limit: int, *, has_ended: bool) -> RestError:
    text = f"the body is longer than {limit} bytes, the app's max_body_bytes"
    return RestError(413, "BODY_TOO_LARGE", text, headers={} if has_ended else {"Connection": "close"})


async def _with_rest_read(error: RestError, message: Any, receive: Receive) -> RestError:
    """An error that is answered before the body has ended; with the end of the connection, if the rest is long."""
    if message.get("more_body") and not await _read_rest(receive):
        error.headers["Connection"] = "close"
    return error


async def _read_rest(receive: Receive) -> bool:
    """Read and forget the rest of a body; whether it ended within ``MOST_REST_BYTES`` and ``REST_TIMEOUT_S``.

    A client that still sends would not see the answer of a server that closes the connection.
    """
    size = 0
    with suppress(asyncio.TimeoutError):
        async with timeout(REST_TIMEOUT_S):
            while size < MOST_REST_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnectedError
                if not message.get("more_body"):
                    return True
                size += len(message.get("body", b""))
    return False


def media_type(headers: Headers) -> str:
    """The type of a request's body; JSON if it says nothing that matters."""
    declared = headers.get(b"content-type", b"")
    if declared == b"application/json":
        return JSON
    name = declared.partition(b";")[0].strip().lower().decode("latin-1")
    if name in SENT_AS_JSON or name.endswith("+json"):
        return JSON
    return SAME.get(name, name)


def accepted(headers: Headers) -> str:
    """The type that a request wants its response to have: one of ours, of an image, or empty for any."""
    header = headers.get(b"accept", b"")
    if header in (b"", b"*/*"):
        return ""
    wanted = []
    for each in header.decode("latin-1").lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        wanted.append((_number(weight), SAME.get(name, name)))
    for preference, name in sorted(wanted, key=lambda each: -each[0]):
        if preference and (name in KNOWN or name.startswith("image/")):
            return name
        if preference and name in ANY:
            return ""
    return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def is_npy(data: bytes) -> bool:
    """Whether it is a file of NumPy."""
    return data.startswith(MAGIC)


def read_npy(data: bytes) -> NDArray[Any]:
    """The array of an ``.npy`` file: a view.

    Raises:
        ValueError: It is no such file, or has Python's objects.
    """
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of .npy files is not understood")
    try:
        shape, is_fortran, dtype = read(file)
    except (tokenize.TokenError, SyntaxError, RecursionError, MemoryError) as error:  # of Python's own parser
        raise ValueError("its header cannot be understood") from error
    if dtype.hasobject:
        raise ValueError("Python's objects are not read")
    if not dtype.itemsize or prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"it has {len(data) - file.tell()} bytes of data, which are no {dtype} of shape {shape}")
    flat = np.frombuffer(data, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")


def write_npy(array: NDArray[Any]) -> bytes:
    """An ``.npy`` file with an array of numbers."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()
