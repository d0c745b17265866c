"""Ports that no other test run on this machine will choose."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import SystemRandom

LOWEST, HIGHEST = 10_000, 32_000  # below the ports that the kernel gives to outgoing connections


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Free ports of 127.0.0.1, ours until the end of the block.

    A port that is only probed could be taken by another run before our server listens on it. Each is therefore claimed
    by binding an abstract Unix socket named after it, which vanishes with this process.
    """
    with ExitStack() as claims:
        ports: list[int] = []
        while len(ports) < count:
            port = SystemRandom().randrange(LOWEST, HIGHEST)
            claim = claims.enter_context(socket.socket(socket.AF_UNIX))
            try:
                claim.bind(f"\0pytriton-test-port-{port}")
            except OSError:
                continue
            if _is_free(port):
                ports.append(port)
        yield ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
