"""Connections of HTTP/1.1 and of gRPC for a load: requests that were encoded once, and one in flight on each.

``PROTOCOLS`` says which connection, encoder and decoder a protocol has.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import count, cycle
from time import perf_counter_ns
from typing import NamedTuple

from payloads import (
    HOST,
    ID,
    LoadError,
    Workload,
    check_outputs,
    grpc_outputs,
    grpc_request,
    http_outputs,
    http_request,
    json_outputs,
    json_request,
)

__all__ = ["GRPC_PATH", "PROTOCOLS", "TIMEOUT_S", "CutError", "GrpcConnection", "HttpConnection", "Protocol"]
__all__ += ["check", "connect"]

GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
TIMEOUT_S = 60
BUFFER_BYTES = 4 << 20
_IDS = count()
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3})")
_BODY_BYTES = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)


class CutError(LoadError):
    """The connection ended within a response."""


class HttpConnection:
    """HTTP/1.1.

    Args:
        port: The server's port.
        requests: Whole requests, which are sent in rotation; :data:`payloads.ID` in them becomes a new id each time.
        timeout_s: Of each wait for the server, while the socket is blocking.

    Attributes:
        sent_ns: When the request in flight was started.
        good: Whether the last response was a success.
        wants_write: Whether a part of the request waits for the socket.
    """

    def __init__(self, port: int, requests: Sequence[bytes], timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of Python's own would cost a poll before each read.
        self.socket.settimeout(None)
        self.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        )
        self._rotation = cycle([(bytearray(each), each.find(ID)) for each in requests])
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._filled = self._begin = self._end = 0
        self.sent_ns, self.good, self.wants_write = 0, False, False

    def start(self) -> None:
        """Start the next request; sends what the socket takes at once."""
        request, position = next(self._rotation)
        _put_id(request, position)
        self._filled = self._begin = self._end = 0
        self.sent_ns = perf_counter_ns()
        self._unsent = memoryview(request)
        self.send()

    def send(self) -> None:
        """Send more of the request."""
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        self.wants_write = len(self._unsent) > 0

    def receive(self) -> bool:
        """Read once; true when the response is complete.

        Raises:
            CutError: The connection ended within a response.
            ConnectionError: The connection ended before it.
            LoadError: The server did not answer in time.
        """
        self._filled += self._read(cut=self._filled > 0)
        if not self._end and (head := self._view.obj.find(b"\r\n\r\n", 0, self._filled)) >= 0:
            self.good, self._begin = self._number(_STATUS, head) == 200, head + 4
            self._end = self._begin + self._number(_BODY_BYTES, head)
            if self._end > len(self._view):
                self._view = memoryview(self._view.obj + bytes(self._end - len(self._view)))
        return 0 < self._end <= self._filled

    def _read(self, cut: bool) -> int:
        """Read into the rest of the buffer; returns the number of bytes. ``cut``: within a response."""
        try:
            read = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError as error:
            raise LoadError("no answer in time") from error
        except ConnectionError as error:
            if cut:
                raise CutError(f"the connection was reset within a response: {error}") from error
            raise
        if not read:
            raise (CutError if cut else ConnectionResetError)("the server closed the connection")
        return read

    def exchange(self) -> None:
        """Send a request and wait for the response, on a blocking socket."""
        self.start()
        while self.wants_write:
            self.send()
        while not self.receive():
            pass

    def fetch(self) -> tuple[bytes, bytes]:
        """Send a request, on a blocking socket; returns head and body, or raises LoadError if it is an error."""
        self.exchange()
        head, body = bytes(self._view[: self._begin]), bytes(self._view[self._begin : self._end])
        if not self.good:
            raise LoadError(f"the server answered {head[:100]!r}: {body[:500]!r}")
        return head, body

    def _number(self, pattern: re.Pattern[bytes], end: int) -> int:
        found = pattern.search(self._view.obj, 0, end)
        if not found:
            raise LoadError(f"the response lacks {pattern.pattern!r}: {bytes(self._view[:end])!r}")
        return int(found[1])

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class GrpcConnection(HttpConnection):
    """gRPC over HTTP/2, as much of it as a closed loop of unary calls needs.

    The status of a call is in trailers, which this class does not decode: a call without a message has failed.
    """

    _WINDOW = (1 << 31) - 1
    _FRAME = 16384
    _DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8

    def __init__(self, port: int, requests: Sequence[bytes], timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(port, (), timeout_s)
        # HPACK: indexed method and scheme, literals without indexing for the other fields.
        block = b"\x83\x86" + b"".join(
            bytes([*name, len(value)]) + value
            for name, value in (
                (b"\x04", GRPC_PATH.encode()),
                (b"\x01", f"{HOST}:{port}".encode()),
                (b"\x00\x02te", b"trailers"),
                (b"\x00\x0ccontent-type", b"application/grpc"),
            )
        )
        self._encoded = cycle([self._encode(block, each) for each in requests])
        self._stream, self._stream_window = -1, 0
        self._window = self._initial_window = 65535
        self._received = self._limit = self._sent = 0
        settings = struct.pack(">HIHI", 4, self._WINDOW, 5, 1 << 20)  # initial window, longest frame
        self._control = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(self._SETTINGS, 0, 0, settings))
        self._control += self._frame(self._WINDOW_UPDATE, 0, 0, struct.pack(">I", self._WINDOW - 65535))
        self._keep, self._message = False, bytearray()

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload

    def _encode(self, block: bytes, message: bytes) -> tuple[bytearray, int, list[tuple[int, int]]]:
        """The frames of a call, the position of its id, and the start and the data size of each frame."""
        data = b"\0" + struct.pack(">I", len(message)) + message
        encoded = bytearray(self._frame(self._HEADERS, 4, 0, block))
        frames = [(0, 0)]
        for position in range(0, len(data), self._FRAME):
            piece = data[position : position + self._FRAME]
            frames.append((len(encoded), len(piece)))
            encoded += self._frame(self._DATA, int(position + self._FRAME >= len(data)), 0, piece)
        return encoded, encoded.find(ID), frames

    def start(self) -> None:
        """Start the next call; sends what the socket and the server's windows allow."""
        request, position, self._frames = next(self._encoded)
        self._stream += 2
        for start, _ in self._frames:
            struct.pack_into(">I", request, start + 5, self._stream)
        _put_id(request, position)
        self._stream_window, self._body_bytes = self._initial_window, 0
        self._sent = self._limit = self._next = 0
        self._message.clear()
        self.sent_ns = perf_counter_ns()
        self._unsent = memoryview(request)
        self.send()

    def send(self) -> None:
        """Send control frames, then whole frames of the call."""
        with suppress(BlockingIOError):
            if self._control and self._sent == self._limit:  # between two frames
                del self._control[: self.socket.send(self._control)]
            if not self._control:
                self._extend()
            if self._sent < self._limit:
                self._sent += self.socket.send(self._unsent[self._sent : self._limit])
        self.wants_write = self._sent < self._limit or bool(self._control)

    def _extend(self) -> None:
        """Allow as many frames as the windows have room for."""
        while self._next < len(self._frames) and self._frames[self._next][1] <= min(self._window, self._stream_window):
            size = self._frames[self._next][1]
            self._window -= size
            self._stream_window -= size
            self._next += 1
            self._limit = self._frames[self._next][0] if self._next < len(self._frames) else len(self._unsent)

    def receive(self) -> bool:
        """Read once; true when the call is complete. Raises as that of HTTP does."""
        self._filled += self._read(cut=self._body_bytes > 0)
        position, complete, buffer = 0, False, self._view.obj
        while self._filled - position >= 9:
            length = buffer[position] << 16 | buffer[position + 1] << 8 | buffer[position + 2]
            end = position + 9 + length
            if end > self._filled:
                break
            complete |= self._handle(buffer[position + 3], buffer[position + 4], position + 5, end)
            position = end
        self._view[: self._filled - position] = self._view[position : self._filled]
        self._filled -= position
        if self._received > 1 << 28:
            self._control += self._frame(self._WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received))
            self._received = 0
        if self._control or self._next < len(self._frames):
            self.send()
        return complete

    def _handle(self, kind: int, flags: int, start: int, end: int) -> bool:
        """Handle a frame, from its stream number on; true when it completes the call."""
        stream, payload = int.from_bytes(self._view[start : start + 4], "big"), self._view[start + 4 : end]
        if kind == self._DATA:
            self._received += len(payload)
            self._body_bytes += len(payload)
            if self._keep:
                self._message += payload
        elif kind == self._WINDOW_UPDATE:
            if stream == 0:
                self._window += int.from_bytes(payload, "big")
            elif stream == self._stream:
                self._stream_window += int.from_bytes(payload, "big")
        elif kind == self._PING and not flags & 1:
            self._control += self._frame(self._PING, 1, 0, bytes(payload))
        elif kind == self._SETTINGS and not flags & 1:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == 4:
                    self._stream_window += value - self._initial_window
                    self._initial_window = value
            self._control += self._frame(self._SETTINGS, 1, 0, b"")
        elif kind == self._GOAWAY:
            raise LoadError(f"the server ends the connection: {bytes(payload[8:])!r}")
        if stream == self._stream and (kind == self._RESET or (kind == self._HEADERS and flags & 1)):
            self.good = self._body_bytes > 0
            return True
        return False

    def fetch(self) -> tuple[bytes, bytes]:
        """Make a call, on a blocking socket; returns no head and the message, or raises LoadError if it failed."""
        self._keep = True
        self.exchange()
        self._keep = False
        if not self.good:
            raise LoadError("the call failed")
        return b"", bytes(self._message[5:])


def _put_id(request: bytearray, position: int) -> None:
    """Put the next id at its position; a negative one is none."""
    if position >= 0:
        request[position : position + len(ID)] = b"%08d" % (next(_IDS) % 10**8)


class Protocol(NamedTuple):
    """How a load speaks to a server.

    Attributes:
        connection: A class with the methods of HttpConnection.
        encode: Port, workload and number of rows to the bytes of a request.
        decode: Head and body of a response to the bytes of its outputs, by their names.
    """

    connection: type[HttpConnection]
    encode: Callable[[int, Workload, int], bytes]
    decode: Callable[[bytes, bytes], dict[str, bytes]]


PROTOCOLS = {
    "http": Protocol(HttpConnection, http_request, http_outputs),
    "json": Protocol(HttpConnection, json_request, json_outputs),
    "grpc": Protocol(GrpcConnection, grpc_request, grpc_outputs),
}


def connect(protocol: str, port: int, workload: Workload, timeout_s: float = TIMEOUT_S) -> HttpConnection:
    """A connection that sends the requests of a workload in rotation."""
    connection, encode, _ = PROTOCOLS[protocol]
    return connection(port, [encode(port, workload, rows) for rows in workload.rows], timeout_s)


def check(protocol: str, port: int, workload: Workload, copies: bool = False, timeout_s: float = TIMEOUT_S) -> None:
    """Send each request of a workload once, and check its outputs.

    Raises:
        LoadError: An answer is wrong or an error.
        OSError: No server listens there.
    """
    with closing(connect(protocol, port, workload, timeout_s)) as connection:
        for rows in workload.rows:
            check_outputs(PROTOCOLS[protocol].decode(*connection.fetch()), workload.outputs(rows, copies))
