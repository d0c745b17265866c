"""Draining a server: whether it has answered the requests that its clients had begun to send when it was asked to stop.

The server counts a request from the moment in which all of it has come until its answer is handed to the HTTP or gRPC
library; ``ModelServer.are_unloaded`` (``model_server.py``) tells of that. The kernel tells of the time before
and after: how many bytes went in each direction of a connection, and whether the server's threads sleep.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Connection", "Drain", "open_connections", "thread_states"]

POLL_S = 0.01
POLLS_ASLEEP = 5  # a busy thread may be seen asleep by chance, once or twice
STREAM_SILENCE_S = 1.0
CALLING_S = 3.0
SETTLE_S = 0.1
PAUSE_S = 0.25
REFUSAL_S = 2.0
STALLED_S = 5.0

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP_REQUEST = 4, 20, 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
ESTABLISHED, CLOSE_WAIT = 1, 8
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
REQUEST = struct.Struct("=BBBBI48x")  # family, protocol, extensions, padding, states, any socket
MESSAGE = struct.Struct("=4xHH16x16x4xQ4xII8x")  # of inet_diag_msg: ports, cookie, queues
LOCAL_PORT = struct.Struct("!H")
ATTRIBUTE = struct.Struct("=HH")
TCP_INFO = struct.Struct("=44xIxxxxI64xQQ")  # last_data_sent, last_data_recv, bytes_acked, bytes_received
RECEIVE_BYTES = 1 << 17


class Drain:
    """Follows the connections that are open at the first question, when models refuse requests already.

    Requests on later connections were not accepted.

    An HTTP connection has a request under way if its client was the last to send. If the server was, with nothing left
    in the connection's queue, and each of the server's threads has slept since, its answer is complete. A gRPC
    connection carries many requests, so the kernel can only tell whether it is silent.

    Args:
        pid: None if it is not known.
        http_ports: Of endpoints that speak HTTP/1.
        grpc_port: Of the endpoint that speaks gRPC; None if there is none.
    """

    def __init__(self, pid: int | None, http_ports: Collection[int], grpc_port: int | None) -> None:
        self._ports = [*http_ports, *(() if grpc_port is None else (grpc_port,))]
        self._threads = ServerThreads(pid)
        self._http_ports, self._grpc_port = http_ports, grpc_port
        self._http: dict[int, HttpConnection] | None = None
        self._open_grpc: list[Connection] = []
        self._grpc: set[int] = set()
        self._first_asked: float | None = None  # whether all is silent, in time.monotonic() seconds

    def wait_received(self, timeout_s: float) -> None:
        """Before models refuse requests, wait until those that are being received over HTTP have come."""
        deadline = time.monotonic() + timeout_s
        before = {each.cookie: each for each in open_connections(self._http_ports)}
        while before and time.monotonic() < deadline:
            now = {each.cookie: each for each in open_connections(self._http_ports)}
            before = {cookie: now[cookie] for cookie, each in before.items() if _is_receiving(each, now.get(cookie))}
            if before:
                time.sleep(POLL_S)

    def is_silent(self) -> bool:
        """Whether no HTTP request is under way, and no gRPC connection carried anything for a second.

        This works while the server still counts requests: it counts an idle gRPC stream as one. A client that goes on
        calling is refused, but its gRPC connection is never silent: after 3 s it is enough that its queues are empty.
        """
        if self._first_asked is None:
            self._first_asked = time.monotonic()
        answered = self._update()
        if time.monotonic() < self._first_asked + CALLING_S:
            return answered and all(_is_silent(each, STREAM_SILENCE_S) for each in self._open_grpc)
        self._grpc -= {each.cookie for each in self._open_grpc if _is_silent(each, 0.0)}
        return answered and not self._grpc

    def has_parsed(self) -> bool:
        """Whether no HTTP request is under way of those that were at the first question."""
        return self._update() or not any(_is_under_way(each.last) for each in (self._http or {}).values())

    def wait_answered(self, deadline: float) -> bool:
        """When the server counts no request any more, wait until the answers have reached the clients.

        This includes requests that are still being received, which the server refuses. It cannot tell which of them
        share a gRPC connection with later requests, so gRPC connections get 2 s.

        Returns:
            False at the deadline, in :func:`time.monotonic` seconds.
        """
        refused = time.monotonic() + REFUSAL_S
        while True:
            answered = self._update(STALLED_S)
            silence_s = SETTLE_S if time.monotonic() < refused else 0.0
            self._grpc -= {each.cookie for each in self._open_grpc if _is_silent(each, silence_s)}
            if answered and not self._grpc:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def _update(self, stalled_s: float | None = None) -> bool:
        """Read the state of connections and threads; returns whether the answers to all HTTP requests are complete.

        Args:
            stalled_s: Give up requests that have stopped to come for so many seconds.
        """
        now = {each.cookie: each for each in open_connections(self._ports)}
        if self._http is None:
            self._http = {each.cookie: HttpConnection(each) for each in now.values() if each.port != self._grpc_port}
            self._grpc = now.keys() - self._http.keys()
        self._grpc &= now.keys()
        self._open_grpc = [now[cookie] for cookie in self._grpc]
        self._threads.poll()
        self._http = {
            cookie: each
            for cookie, each in self._http.items()
            if cookie in now and not each.is_answered(now[cookie], self._threads, stalled_s)
        }
        return not self._http


class HttpConnection:
    """Whether the request that was under way when this was made, if there was one, has got its whole answer.

    Attributes:
        last: The connection at the last poll.
    """

    def __init__(self, now: Connection) -> None:
        self.last = now
        self._unchanged_since = 0  # the number of a poll of the threads
        self._answer = now if now.since_sent_s < now.since_received_s else None  # or a part of it

    def is_answered(self, now: Connection, threads: ServerThreads, stalled_s: float | None) -> bool:
        """Whether the answer is complete.

        Args:
            stalled_s: As for :meth:`Drain._update`.
        """
        before, self.last = self.last, now
        if self._answer is not None and now.received_bytes > self._answer.received_bytes:
            return True  # clients send the next request when they have the answer to the last one
        if now.sent_bytes > before.sent_bytes and self._answer is None:
            self._answer = now
        moved = (now.received_bytes, now.sent_bytes) != (before.received_bytes, before.sent_bytes)
        if moved or now.unread_bytes or now.unsent_bytes or not self._unchanged_since:
            self._unchanged_since = threads.polls
            return False
        if _is_under_way(now) and (stalled_s is None or now.since_received_s < stalled_s):
            return False
        return threads.have_slept_since(self._unchanged_since)


class ServerThreads:
    """Whether each thread of a process has slept, so that it had nothing left to do.

    Args:
        pid: Of the process; None polls no threads, so that all have always slept.

    Attributes:
        polls: How often the threads were polled.
    """

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self.polls = 0
        self._asleep: dict[str, list[int]] = {}  # of each thread, the numbers of the last polls that saw it asleep

    def poll(self) -> None:
        """See which threads sleep."""
        self.polls += 1
        states = dict(thread_states(self._pid))
        self._asleep = {thread: self._asleep.get(thread, [])[-POLLS_ASLEEP:] for thread in states}
        for thread, state in states.items():
            if state == "S":
                self._asleep[thread].append(self.polls)

    def have_slept_since(self, poll: int) -> bool:
        """Whether ``POLLS_ASLEEP`` polls after this one saw each thread asleep."""
        seen_asleep = all(len(polls) >= POLLS_ASLEEP and polls[-POLLS_ASLEEP] > poll for polls in self._asleep.values())
        return seen_asleep and self.polls >= poll + POLLS_ASLEEP


def thread_states(process: int | str | None) -> Iterator[tuple[str, str]]:
    """Ids of a process's threads, with the letters of their states as in ``man proc_pid_stat``.

    Args:
        process: Its id, or ``self``. Nothing is known of a process that has ended, or is in another namespace.
    """
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # the thread has ended; its name, in parentheses, may contain anything
                yield thread.name, (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]


@dataclass(frozen=True)
class Connection:
    """The state of one connection of a client to the server.

    Attributes:
        cookie: Identifies it; no other connection gets the same.
        port: The server's.
        unread_bytes: Bytes that have come, and that the server has not read.
        unsent_bytes: Bytes that the server has written, and that the client's machine has not acknowledged.
        received_bytes: Bytes that have come in all.
        sent_bytes: Bytes that the client's machine has acknowledged in all.
        since_received_s: Seconds since the last bytes came.
        since_sent_s: Seconds since the last bytes were sent.
    """

    cookie: int
    port: int
    unread_bytes: int
    unsent_bytes: int
    received_bytes: int
    sent_bytes: int
    since_received_s: float
    since_sent_s: float


def _is_under_way(connection: Connection) -> bool:
    """Whether the client was the last to send."""
    return connection.received_bytes > 0 and connection.since_received_s < connection.since_sent_s


def _is_receiving(before: Connection, now: Connection | None) -> bool:
    """Whether a request still comes, of which nothing is answered."""
    if now is None or now.sent_bytes > before.sent_bytes or not _is_under_way(now):
        return False
    return now.unread_bytes > 0 or now.since_received_s < PAUSE_S


def _is_silent(connection: Connection, seconds: float) -> bool:
    """Whether the queues are empty, and nothing was sent or received for so long."""
    queued = connection.unread_bytes or connection.unsent_bytes
    return not queued and min(connection.since_sent_s, connection.since_received_s) >= seconds


def open_connections(ports: Collection[int]) -> list[Connection]:
    """The connections to local ports on which the server can still send."""
    try:
        return _from_diagnosis(ports)
    except OSError:  # a sandbox forbids it, or has no such sockets
        return [*_from_tables(ports)]


def _from_diagnosis(ports: Collection[int]) -> list[Connection]:
    """All that the kernel knows of them."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
        return [
            connection
            for family in (socket.AF_INET, socket.AF_INET6)
            for connection in _dump(kernel, family)
            if connection.port in ports
        ]


def _dump(kernel: socket.socket, family: int) -> Iterator[Connection]:
    states = 1 << ESTABLISHED | 1 << CLOSE_WAIT
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, states)
    header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_DUMP_REQUEST, 0, 0)
    kernel.send(header + request)
    while True:
        data = kernel.recv(RECEIVE_BYTES)
        while data:
            size, kind, *_ = HEADER.unpack_from(data)
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, HEADER.size)[0]
                raise OSError(number, "the kernel does not list connections")
            connection = _parse(data[HEADER.size : size])
            if connection is not None:
                yield connection
            data = data[_aligned(size) :]


def _parse(message: bytes) -> Connection | None:
    (port,) = LOCAL_PORT.unpack_from(message, 4)
    _, _, cookie, unread, unsent = MESSAGE.unpack_from(message)
    offset = MESSAGE.size
    while offset + ATTRIBUTE.size <= len(message):
        size, kind = ATTRIBUTE.unpack_from(message, offset)
        if kind == INET_DIAG_INFO and size >= ATTRIBUTE.size + TCP_INFO.size:
            sent_ms, received_ms, sent, received = TCP_INFO.unpack_from(message, offset + ATTRIBUTE.size)
            return Connection(cookie, port, unread, unsent, received, sent, received_ms / 1000, sent_ms / 1000)
        offset += max(_aligned(size), ATTRIBUTE.size)
    return None


def _from_tables(ports: Collection[int]) -> Iterator[Connection]:
    """Their queues alone: the kernel's tables do not show which side was the last to send."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, queues, *_ = line.split()
            port = int(local.rpartition(":")[2], 16)
            if port in ports and int(state, 16) in (ESTABLISHED, CLOSE_WAIT):
                unsent, unread = (int(size, 16) for size in queues.split(":"))
                yield Connection(int(remote.replace(":", ""), 16), port, unread, unsent, 0, 0, math.inf, math.inf)


def _aligned(size: int) -> int:
    """The next multiple of four, at which the kernel begins its next record."""
    return -(-size // 4) * 4
