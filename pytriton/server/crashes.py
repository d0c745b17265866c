"""What is known of the requests before a server's death, and clients whose requests preceded several of them.

The edge writes the last requests that came to a file which outlives it
(``pytriton/native/edge/recent_requests.h`` has its format), over gRPC as well where it serves that.
"""

from __future__ import annotations

import ipaddress
import mmap
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytriton.security import is_loopback

__all__ = ["RECENT_BYTES", "Crashes", "RecentRequest", "described", "read_requests"]

ENTRY = struct.Struct("=QQIHH48s184s")
RECENT_BYTES = 512 * ENTRY.size
DESCRIBED = 3  # requests in a line of the log
REMEMBERED, SUSPICIOUS = 5, 3  # crashes; in so many of them
FIRST_REFUSAL_S, LONGEST_REFUSAL_S = 60.0, 3600.0


@dataclass(frozen=True)
class RecentRequest:
    """A request that came before the end.

    Attributes:
        number: In the order in which requests came.
        target: Method and path, of at most 184 bytes.
        body_bytes: Of its body.
        peer: Address of the client; empty for a Unix socket, such as the app's.
        is_in_flight: Whether it was not answered yet.
    """

    number: int
    target: str
    body_bytes: int
    peer: str
    is_in_flight: bool

    def __str__(self) -> str:
        return f"{self.target!r} with {self.body_bytes} bytes from {self.peer or 'a Unix socket'}"


def read_requests(descriptor: int) -> list[RecentRequest]:
    """The requests in a file of the edge, the last one first, without this process's own about its health."""
    with mmap.mmap(descriptor, RECENT_BYTES, prot=mmap.PROT_READ) as memory:
        entries = [*ENTRY.iter_unpack(memory[:])]
    return sorted(
        (
            RecentRequest(number, _text(target[:target_size]), size, _text(peer[:peer_size]), bool(in_flight))
            for number, size, in_flight, peer_size, target_size, peer, target in entries
            if number and (peer_size or size)
        ),
        key=lambda request: -request.number,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def described(requests: Sequence[RecentRequest]) -> str:
    """The last requests in flight, or else the last one, for a line of the log; empty if there was none."""
    in_flight = [request for request in requests if request.is_in_flight]
    if not in_flight:
        return f"the last request over HTTP was {requests[0]}" if requests else ""
    more = f" and {len(in_flight) - DESCRIBED} more" if len(in_flight) > DESCRIBED else ""
    return "in flight over HTTP were " + ", ".join(map(str, in_flight[:DESCRIBED])) + more


class Crashes:
    """The last deaths of one server, and the addresses that its edge refuses because of them.

    An address, or network of 64 bits with IPv6, is refused if its requests were in flight at three of the last five
    deaths, for a minute, and twice as long each further time. It is not refused if no requests came from elsewhere:
    that is all of the service, or a proxy in front of it. Neither are loopback addresses.

    Attributes:
        count: Deaths.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._now = now
        self._suspects: deque[set[str]] = deque(maxlen=REMEMBERED)
        self._refused_until: dict[str, float] = {}
        self._refusals: Counter[str] = Counter()

    def record(self, requests: Iterable[RecentRequest]) -> list[tuple[str, float]]:
        """Count a death.

        Args:
            requests: What :func:`read_requests` returned.

        Returns:
            The addresses, or networks, that are refused from now on, and for how many seconds.
        """
        self.count += 1
        clients = [request for request in requests if request.peer]  # the app may stand for some of these
        networks = {_network(request.peer) for request in clients}
        in_flight = [request.peer for request in clients if request.is_in_flight] if len(networks) > 1 else []
        self._suspects.append({_network(peer) for peer in in_flight if not is_loopback(peer)})
        found = Counter(peer for suspects in self._suspects for peer in suspects)
        refused = []
        for peer in self._suspects[-1]:
            if found[peer] >= SUSPICIOUS:
                period_s = min(FIRST_REFUSAL_S * 2.0 ** self._refusals[peer], LONGEST_REFUSAL_S)
                self._refusals[peer] += 1
                self._refused_until[peer] = self._now() + period_s
                refused.append((peer, period_s))
        return refused

    def refused(self) -> dict[str, float]:
        """Addresses and networks to refuse, and until when in :func:`time.monotonic` seconds."""
        return {peer: until for peer, until in self._refused_until.items() if until > self._now()}


def _network(peer: str) -> str:
    """Of an IPv6 address its network of 64 bits, as the edge writes it; else the address."""
    try:
        return str(ipaddress.IPv6Network((peer, 64), strict=False))
    except ValueError:
        return peer
