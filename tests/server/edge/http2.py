"""Connections of HTTP/2, frame by frame: a test can send what no library would."""

from __future__ import annotations

import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from tests.server.processes import DEADLINE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 3, 7, 8, 11
TABLE_SIZE, WINDOW, MOST_FRAME = 1, 4, 5  # settings
# "grpc-status" in Huffman's code, with its length before it; the status itself is shorter without a code.
_STATUS = re.compile(rb"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f[\x01\x02](\d+)")
Result = TypeVar("Result")
SERVICE = "/inference.GRPCInferenceService/"


class Frame(NamedTuple):
    """A frame that has come."""

    kind: int
    flags: int
    stream: int
    content: bytes

    @property
    def code(self) -> int:
        """Of an error, in RST_STREAM and GOAWAY."""
        return int(struct.unpack("!I", self.content[:4] if self.kind == RST_STREAM else self.content[4:8])[0])


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack("!I", len(content))[1:] + struct.pack("!BBI", kind, flags, stream) + content


def settings(**values: int) -> bytes:
    """A frame of settings, by the names above in lower case."""
    pairs = [({"table_size": TABLE_SIZE, "window": WINDOW}[name], value) for name, value in values.items()]
    return frame(SETTINGS, 0, 0, b"".join(struct.pack("!HI", *pair) for pair in pairs))


def field(name: bytes, value: bytes, kind: int = 0) -> bytes:
    """A field without a code; of kind 0x40, it is kept in the table."""
    return b"%c%b%b%b%b" % (kind, number(len(name)), name, number(len(value)), value)


def number(value: int, bits: int = 7) -> bytes:
    """An integer of HPACK, whose first byte has so many bits for it."""
    most = 2**bits - 1
    if value < most:
        return bytes([value])
    rest, coded = value - most, [most]
    while rest >= 128:
        coded.append(rest % 128 + 128)
        rest //= 128
    return bytes([*coded, rest])


def head(method: str = "ModelInfer", *more: tuple[bytes, bytes]) -> bytes:
    """The block of fields of a call."""
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "a"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    pairs = [*((name.encode(), value.encode()) for name, value in fields.items()), *more]
    return b"".join(field(*pair) for pair in pairs)


def message(content: bytes, is_compressed: bool = False) -> bytes:
    """A message with its prefix."""
    return struct.pack("!BI", is_compressed, len(content)) + content


def call(stream: int, content: bytes, method: str = "ModelInfer", *more: tuple[bytes, bytes]) -> bytes:
    """A whole call of a method, with one message of less than 16 KiB."""
    block = head(method, *more)
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, message(content))


class Http2Client:
    """A connection of which both sides may do anything.

    Args:
        connection: To the server.
        begins: Whether the preface and settings are sent, and those of the server acknowledged: they give streams a
            larger window, and the server compresses no fields with the table.
    """

    def __init__(self, connection: socket.socket, begins: bool = True) -> None:
        self.socket = connection
        self.socket.setblocking(False)
        self.timeout_s = DEADLINE_S
        self._received = b""
        self._lock = threading.Lock()  # of the socket, as TLS is for one thread at a time and tests use two
        if begins:
            self.send(PREFACE + settings(table_size=0) + frame(SETTINGS, ACK, 0))

    @classmethod
    def at(cls, port: int, context: ssl.SSLContext | None = None, begins: bool = True) -> Http2Client:
        """A new connection, with TLS if there is a context."""
        plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        return cls(context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain, begins)

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send bytes; false if the server has closed the connection."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._wait_for(select.POLLOUT, self.socket.send, rest[: 1 << 14]) :]
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    def _wait_for(self, event: int, operation: Callable[..., Result], *arguments: object) -> Result:
        """What an operation of the socket returns when it would not block.

        Raises:
            TimeoutError: The other side does nothing for so long.
        """
        poll = select.poll()
        poll.register(self.socket, event)
        while True:
            try:
                with self._lock:
                    return operation(*arguments)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not poll.poll(self.timeout_s * 1000):
                    raise TimeoutError("the server neither sends nor receives") from None

    def send_all(self, kind: int, stream: int, data: bytes, end: bool = True) -> bool:
        """Send bytes in frames of 16 KiB, whatever the server's window."""
        size = 1 << 14
        parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        return all(
            self.send(frame(kind, END_STREAM if end and part is parts[-1] else 0, stream, part)) for part in parts
        )

    def frames(self) -> Iterator[Frame]:
        """Those that come, until the server closes the connection."""
        while (start := self._take(9)) is not None:
            length, kind, flags, stream = struct.unpack("!IBBI", b"\0" + start)
            content = self._take(length)
            if content is None:
                return
            yield Frame(kind, flags, stream, content)

    def _take(self, size: int) -> bytes | None:
        try:
            while len(self._received) < size:
                if not (received := self._wait_for(select.POLLIN, self.socket.recv, 1 << 16)):
                    return None
                self._received += received
        except (ConnectionError, ssl.SSLError):
            return None
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def ending(self, stream: int) -> str:
        """How a stream ends: ``status 0`` with gRPC's code, ``reset 8`` or ``goaway 11`` with HTTP's, or ``closed``."""
        for each in self.frames():
            if each.kind == GOAWAY and each.code:
                return f"goaway {each.code}"
            if each.stream != stream:
                continue
            if each.kind == RST_STREAM:
                return f"reset {each.code}"
            if each.kind == HEADERS and (found := _STATUS.search(each.content)):
                return f"status {int(found[1])}"
        return "closed"

    def end(self) -> str:
        """How the connection ends: ``goaway 11``, with HTTP's code, or ``closed`` without a word."""
        said = "closed"
        for each in self.frames():
            if each.kind == GOAWAY:
                said = f"goaway {each.code}"
        return said
