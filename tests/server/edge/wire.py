"""Requests and answers over HTTP, byte by byte."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any

from pytriton.triton import TritonConfig

DEADLINE_S = 60.0
LENGTH = "inference-header-content-length"
# The date changes, and which of the others there are says nothing about the answer.
IGNORED = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        method: Such as ``POST``.
        target: Path and query.
        body: As it is sent, without transfer encoding.
        headers: Beside Host and Content-Length.
        chunks: Sizes of the chunks in which the body is sent; none has Content-Length instead.
        version: Of HTTP.
    """

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[int] = ()
    version: str = "1.1"

    def encoded(self) -> bytes:
        """The bytes to send."""
        lines = [f"{self.method} {self.target} HTTP/{self.version}", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        body = self.body
        if self.chunks:
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(_chunks(body, self.chunks))
        elif body or self.method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _chunks(body: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    for size in sizes:
        piece, body = body[:size], body[size:]
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    if body:
        yield b"%x\r\n%b\r\n" % (len(body), body)
    yield b"0\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    """An answer, or what it means, so that two servers' can be compared.

    Attributes:
        status: Such as 200.
        headers: By lower-case names, without those that say nothing.
        json: Of the body, or of its part before the binary data; None if it is not JSON.
        data: What follows the JSON, or the whole body.
        keeps_alive: Whether the connection takes another request.
    """

    status: int
    headers: dict[str, str]
    json: Any
    data: bytes
    keeps_alive: bool

    @property
    def error(self) -> str:
        """The text of an error."""
        return str(self.json["error"]) if isinstance(self.json, dict) and "error" in self.json else ""


class Client:
    """One connection to a server.

    Args:
        address: Host and port, or the path of a Unix socket.
    """

    def __init__(self, address: tuple[str, int] | str) -> None:
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.socket.settimeout(DEADLINE_S)
        try:
            self.socket.connect(address)
        except BaseException:
            self.socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def answer(self, method: str = "GET") -> Answer:
        """Read one answer to the end.

        Raises:
            ConnectionError: There is none.
        """
        with HTTPResponse(self.socket, method=method) as response:
            response.fp = self._file()
            response.begin()
            body = response.read()
            keeps_alive = not response.will_close
            headers = {name.lower(): value for name, value in response.headers.items()}
        return _answer(response.status, headers, body, keeps_alive)

    def ask(self, request: Request) -> Answer:
        """Send a request, and read the answer."""
        self.send(request.encoded())
        return self.answer(request.method)

    def is_closed(self) -> bool:
        """Wait until the server closes the connection; false if it sends something instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _file(self) -> Any:
        # Without a buffer, as it would take the bytes of the next answer along.
        return _Unbuffered(self.socket)


class _Unbuffered:
    """What HTTPResponse reads from."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def readline(self, limit: int = -1) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n") and (byte := self._socket.recv(1)):
            line += byte
        return bytes(line)

    def read(self, size: int = -1) -> bytes:
        pieces: list[bytes] = []
        while size and (piece := self._socket.recv(65536 if size < 0 else min(size, 65536))):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        return self._socket.recv_into(buffer)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def connected(config: TritonConfig) -> Iterator[Client]:
    """A connection to a server's HTTP endpoint."""
    client = Client((str(config.http_address), int(config.http_port or 0)))
    try:
        yield client
    finally:
        client.close()


def _answer(status: int, headers: dict[str, str], body: bytes, keeps_alive: bool) -> Answer:
    encoding = headers.get("content-encoding")
    if encoding and body:
        body = gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body)
    length = int(headers.get(LENGTH, len(body)))
    try:
        content, data = json.loads(body[:length]), body[length:]
    except ValueError:
        content, data = None, body
    kept = {name: value for name, value in headers.items() if name not in IGNORED | {LENGTH}}
    return Answer(status, kept, content, data, keeps_alive)
