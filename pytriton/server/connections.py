"""The server's connections as the kernel sees them: whether it listens, and what is under way on each."""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pytriton.constants import TRITON_LOCAL_IP

__all__ = ["Connection", "open_connections", "wait_listening"]

POLL_S = 0.005

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


@dataclass(frozen=True)
class Connection:
    """One connection of a client to the server, at some moment.

    Attributes:
        cookie: Identifies it; no other connection gets the same.
        port: The server's.
        unread_bytes: That have come, and the server has not read.
        unsent_bytes: That the server has written, and the client's machine has not acknowledged.
        received_bytes: In all.
        sent_bytes: In all, as far as they are acknowledged.
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


def wait_listening(ports: Collection[int], may_come: Callable[[], bool]) -> bool:
    """Wait until somebody listens on all these ports of this machine; False if that makes no sense any more."""
    for port in ports:
        while not _is_listening(port):
            if not may_come():
                return False
            time.sleep(POLL_S)
    return True


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((TRITON_LOCAL_IP, port)) == 0


def open_connections(ports: Collection[int]) -> list[Connection]:
    """The connections to local ports on which the server can still send."""
    try:
        return _diagnosed(ports)
    except OSError:  # a sandbox forbids it, or has no such sockets
        return [*_listed(ports)]


def _diagnosed(ports: Collection[int]) -> list[Connection]:
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


def _listed(ports: Collection[int]) -> Iterator[Connection]:
    """Their queues, from the kernel's tables; it is not told which side was the last to send."""
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
    """Up to the next multiple of four, where the kernel begins its next record."""
    return -(-size // 4) * 4
