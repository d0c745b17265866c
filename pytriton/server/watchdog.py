"""Notices that a server hangs: it runs, and answers nothing. Asks it every few seconds, as its clients do.

Over HTTP, it asks for the server's health, by the private socket of the edge if there is one. Over gRPC, it
makes a call and opens a stream on a new connection, since threads of their own answer them. The call names no model, as
questions for the health wait while a model is loaded. HTTP/2 is written here: gRPC's library would start threads.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from pytriton.threads import is_traced, keep_running

__all__ = ["Watchdog", "ask_grpc", "ask_http"]

MAX_PERIOD_S = 5.0


class Watchdog:
    """Asks a server on a thread of its own, until :meth:`stop`.

    A suspended machine, or a stopped process of ours, is no reason: what counts is how many questions in a row were not
    answered while this process waited.

    Args:
        questions: By the name of the endpoint: waits so many seconds for an answer; False if there was none.
        timeout_s: The server hangs if an endpoint does not answer for about so long.
        pid: While a debugger holds it, it does not hang.
        on_change: Called with whether the server answers, when that has changed.
        on_hang: Called at most once, with the names of the endpoints that do not answer.
    """

    def __init__(
        self,
        questions: Mapping[str, Callable[[float], bool | None]],
        timeout_s: float,
        pid: Callable[[], int | None],
        on_change: Callable[[bool], None],
        on_hang: Callable[[str], None],
    ) -> None:
        self._questions = questions
        self._period_s = min(MAX_PERIOD_S, timeout_s / 6)
        self._most = math.ceil(timeout_s / (2 * self._period_s))  # of unanswered questions, each after a pause
        self._pid, self._on_change, self._on_hang = pid, on_change, on_hang
        self._unanswered = dict.fromkeys(questions, 0)
        self._stopped = threading.Event()
        self._thread = keep_running(self._watch, "pytriton-watchdog")

    def stop(self) -> None:
        """Ask no more; a question that is being asked ends by itself. May be called twice, from any thread."""
        self._stopped.set()

    def is_answered(self) -> bool:
        """Whether all endpoints answered the last time."""
        return not any(self._unanswered.values())

    def _watch(self) -> None:
        while not self._stopped.wait(self._period_s):
            before = self.is_answered()
            for name, ask in self._questions.items():
                self._unanswered[name] = self._unanswered[name] + 1 if ask(self._period_s) is False else 0
            if self._stopped.is_set():
                return
            if self.is_answered() != before:
                self._on_change(self.is_answered())
            hung = [name for name, count in self._unanswered.items() if count >= self._most]
            if hung and not is_traced(self._pid()):
                self._stopped.set()
                self._on_hang(" and ".join(hung))


READ_BYTES = 65536

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = struct.Struct(">HBBBI")  # length in 24 bits, type, flags, stream
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM = ACK = 1
END_HEADERS = 4
CALL, STREAM = 1, 3
SERVICE = "/inference.GRPCInferenceService/"


def ask_http(address: str | tuple[str, int], headers: Mapping[str, str], timeout_s: float) -> bool | None:
    """Ask over HTTP whether a server lives.

    Args:
        address: Path of a Unix socket, or host and port.

    Returns:
        True for any answer, False if there was none in time, None if the connection failed: one that ends is not hung.
    """
    lines = ["GET /v2/health/live HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return _is_answered(address, timeout_s, None, "\r\n".join([*lines, "", ""]).encode("latin-1"), lambda data: True)


def ask_grpc(
    address: str | tuple[str, int],
    headers: Mapping[str, str],
    timeout_s: float,
    context: Callable[[], ssl.SSLContext] | None = None,
) -> bool | None:
    """Make a call without a model, and open a stream that sends nothing, over gRPC; as :func:`ask_http`.

    Args:
        context: Makes what TLS needs; None without TLS.
    """
    scheme = b"\x86" if context is None else b"\x87"
    sent = [PREFACE, _frame(SETTINGS, 0, 0, b"")]
    for number, method, flags in ((CALL, "ModelInfer", 0), (STREAM, "ModelStreamInfer", END_STREAM)):
        # :method POST, :scheme, :path and :authority, of HPACK's static table; then fields with names of their own.
        block = b"\x83" + scheme + b"\x04" + _text(SERVICE + method) + b"\x01" + _text("localhost")
        for name, value in {"content-type": "application/grpc", "te": "trailers", **headers}.items():
            block += b"\x10" + _text(name) + _text(value)  # never to be put into a table
        sent.append(_frame(HEADERS, flags | END_HEADERS, number, block))
    sent.append(_frame(DATA, END_STREAM, CALL, b"\0" * 5))  # an empty message
    unread, open_streams = b"", {CALL, STREAM}

    def is_answered(data: bytes) -> bool:
        nonlocal unread
        unread += data
        for kind, flags, number, size in _frames(unread):
            unread = unread[FRAME.size + size :]
            if kind == GOAWAY or (number in open_streams and (kind == RST_STREAM or flags & END_STREAM)):
                open_streams.discard(number)
            if kind == GOAWAY or not open_streams:
                return True
        return False

    return _is_answered(address, timeout_s, context, b"".join(sent), is_answered)


def _is_answered(
    address: str | tuple[str, int],
    timeout_s: float,
    context: Callable[[], ssl.SSLContext] | None,
    request: bytes,
    is_answer: Callable[[bytes], bool],
) -> bool | None:
    deadline = time.monotonic() + timeout_s
    with closing(socket.socket(_family(address))) as connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
            if context is not None:
                connection = context().wrap_socket(connection)
            connection.sendall(request)
            while True:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                data = connection.recv(READ_BYTES)
                if not data:
                    return None
                if is_answer(data):
                    return True
        except (TimeoutError, BlockingIOError):  # the latter if a Unix socket's queue is full
            return False
        except OSError:
            return None
        finally:
            connection.close()


def _family(address: str | tuple[str, int]) -> socket.AddressFamily:
    if isinstance(address, str):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return FRAME.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, number) + payload


def _frames(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, flags, stream and length of each frame that is complete."""
    at = 0
    while len(data) >= at + FRAME.size:
        high, low, kind, flags, number = FRAME.unpack_from(data, at)
        size = high << 8 | low
        if len(data) < at + FRAME.size + size:
            return
        yield kind, flags if kind in (DATA, HEADERS) else 0, number, size
        at += FRAME.size + size


def _text(text: str) -> bytes:
    """A text of HPACK, without Huffman's code."""
    data = text.encode("latin-1")
    size = len(data)
    if size < 0x7F:
        return bytes([size]) + data
    size -= 0x7F
    prefix = b"\x7f"
    while size >= 0x80:
        prefix += bytes([size & 0x7F | 0x80])
        size >>= 7
    return prefix + bytes([size]) + data
