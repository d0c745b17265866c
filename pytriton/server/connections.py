"""The server's connections: whether it takes any, and whether answers are still on their way to clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection

from pytriton.constants import TRITON_LOCAL_IP

ESTABLISHED = "01"
POLL_S = 0.005


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


def unsent_bytes(ports: Collection[int]) -> int:
    """Bytes in the send queues of connections to local ports, from the kernel's tables."""
    total = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, queues, *_ = line.split()
            if state == ESTABLISHED and int(local.rpartition(":")[2], 16) in ports:
                total += int(queues.partition(":")[0], 16)
    return total


def wait_sent(ports: Collection[int], deadline: float) -> bool:
    """Wait until nothing is queued, twice in a row; False at the deadline, in :func:`time.monotonic` seconds.

    The server hands an answer to its connection's queue within microseconds, and refills the queue as it drains.
    """
    quiet = 0
    while quiet < 2:
        if time.monotonic() > deadline:
            return False
        quiet = 0 if unsent_bytes(ports) else quiet + 1
        time.sleep(POLL_S)
    return True
