"""Whether a server has answered what its clients had begun to send when it was asked to stop."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from pytriton.server.connections import Connection, open_connections

__all__ = ["Drain"]

LOOK_S = 0.01
LOOKS_ASLEEP = 5  # a busy thread may be seen asleep by chance, once or twice
STREAM_SILENCE_S = 1.0
SETTLE_S = 0.1
PAUSE_S = 0.25
REFUSAL_S = 2.0
STALLED_S = 5.0


class Drain:
    """Follows the connections that are open when it is first asked, which is to be when models refuse requests already.

    What is sent over later connections was not accepted.

    The server counts a request from the moment in which all of it has come until its answer is handed to the HTTP or
    gRPC library; :meth:`pytriton.server.control.ModelControl.is_unloaded` tells of that. The kernel tells of the time
    before and after: of the bytes in both directions, and whether the server's threads sleep.

    An HTTP connection has a request under way if its client was the last to send. If the server was, with nothing left
    in the connection's queue, and each of the server's threads has slept since, its answer is complete. Of a gRPC
    connection, which carries many requests, the kernel can only tell whether it is silent.

    Args:
        pid: Of the server; None if it is not known.
        http_ports: Of endpoints that speak HTTP/1.
        grpc_port: Of the endpoint that speaks gRPC; None if there is none.
    """

    def __init__(self, pid: int | None, http_ports: Collection[int], grpc_port: int | None) -> None:
        self._ports = [*http_ports, *(() if grpc_port is None else (grpc_port,))]
        self._threads = _Threads(pid)
        self._http_ports, self._grpc_port = http_ports, grpc_port
        self._http: dict[int, _HttpConnection] | None = None
        self._open_grpc: list[Connection] = []
        self._grpc: set[int] = set()

    def wait_received(self, timeout_s: float) -> None:
        """Before models refuse requests, wait for the rest of those that are being received over HTTP."""
        deadline = time.monotonic() + timeout_s
        before = {each.cookie: each for each in open_connections(self._http_ports)}
        while before and time.monotonic() < deadline:
            now = {each.cookie: each for each in open_connections(self._http_ports)}
            before = {cookie: now[cookie] for cookie, each in before.items() if _is_receiving(each, now.get(cookie))}
            if before:
                time.sleep(LOOK_S)

    def is_silent(self) -> bool:
        """Whether no HTTP request is under way, and no gRPC connection carried anything for a second.

        This can be asked while the server still counts requests: it counts an idle gRPC stream as one.
        """
        return self._look() and all(_is_silent(each, STREAM_SILENCE_S) for each in self._open_grpc)

    def has_parsed(self) -> bool:
        """Whether no HTTP request is under way of those that were when this was first asked."""
        return self._look() or not any(_is_under_way(each.last) for each in (self._http or {}).values())

    def wait_answered(self, deadline: float) -> bool:
        """When the server counts no request any more, wait until the answers have reached the clients.

        Requests that are still being received are waited for: the server refuses them. It is not told which of them
        share a gRPC connection with requests that begin later, so that these get 2 s.

        Returns:
            False at the deadline, in :func:`time.monotonic` seconds.
        """
        refused = time.monotonic() + REFUSAL_S
        while True:
            answered = self._look(STALLED_S)
            silence_s = SETTLE_S if time.monotonic() < refused else 0.0
            self._grpc -= {each.cookie for each in self._open_grpc if _is_silent(each, silence_s)}
            if answered and not self._grpc:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)

    def _look(self, stalled_s: float | None = None) -> bool:
        """Look at connections and threads; returns whether the answers to all HTTP requests are complete.

        Args:
            stalled_s: Give up requests of which the rest has not come for so many seconds.
        """
        now = {each.cookie: each for each in open_connections(self._ports)}
        if self._http is None:
            self._http = {each.cookie: _HttpConnection(each) for each in now.values() if each.port != self._grpc_port}
            self._grpc = now.keys() - self._http.keys()
        self._grpc &= now.keys()
        self._open_grpc = [now[cookie] for cookie in self._grpc]
        self._http = {cookie: each for cookie, each in self._http.items() if cookie in now}
        self._threads.look()
        for cookie, connection in [*self._http.items()]:
            if connection.is_answered(now[cookie], self._threads, stalled_s):
                del self._http[cookie]
        return not self._http


class _HttpConnection:
    """Whether the request that was under way when this was made, if there was one, has got its whole answer.

    Attributes:
        last: What the connection was like when it was last looked at.
    """

    def __init__(self, now: Connection) -> None:
        self.last = now
        self._unchanged_since = 0  # the number of a look at the threads
        self._answer = now if now.since_sent_s < now.since_received_s else None  # or a part of it

    def is_answered(self, now: Connection, threads: _Threads, stalled_s: float | None) -> bool:
        """Whether it is by now.

        Args:
            now: The connection.
            threads: The server's.
            stalled_s: As for :meth:`Drain._look`.
        """
        before, self.last = self.last, now
        if self._answer is not None and now.received_bytes > self._answer.received_bytes:
            return True  # clients send the next request when they have the answer to the last one
        if now.sent_bytes > before.sent_bytes and self._answer is None:
            self._answer = now
        moved = (now.received_bytes, now.sent_bytes) != (before.received_bytes, before.sent_bytes)
        if moved or now.unread_bytes or now.unsent_bytes or not self._unchanged_since:
            self._unchanged_since = threads.looks
            return False
        if _is_under_way(now) and (stalled_s is None or now.since_received_s < stalled_s):
            return False
        return threads.have_slept_since(self._unchanged_since)


class _Threads:
    """The threads of a process, and whether they had something to do.

    Attributes:
        looks: How often they were looked at.
    """

    def __init__(self, pid: int | None) -> None:
        self._folder = Path(f"/proc/{pid}/task")
        self.looks = 0
        self._asleep: dict[str, list[int]] = {}  # the numbers of the last looks at which a thread was asleep

    def look(self) -> None:
        """See which threads sleep."""
        self.looks += 1
        states = dict(self._states())
        self._asleep = {thread: self._asleep.get(thread, [])[-LOOKS_ASLEEP:] for thread in states}
        for thread, state in states.items():
            if state == "S":
                self._asleep[thread].append(self.looks)

    def have_slept_since(self, look: int) -> bool:
        """Whether each thread was seen asleep ``LOOKS_ASLEEP`` times after a look."""
        seen_asleep = all(len(looks) >= LOOKS_ASLEEP and looks[-LOOKS_ASLEEP] > look for looks in self._asleep.values())
        return seen_asleep and self.looks >= look + LOOKS_ASLEEP

    def _states(self) -> Iterator[tuple[str, str]]:
        """Ids of the threads, with the letters of their states as in ``man proc_pid_stat``."""
        with suppress(OSError):  # the process has ended, or belongs to another namespace
            for thread in self._folder.iterdir():
                with suppress(OSError):  # the thread has ended
                    yield thread.name, (thread / "stat").read_text().rpartition(")")[2].split()[0]


def _is_under_way(connection: Connection) -> bool:
    """Whether the client was the last to send."""
    return connection.received_bytes > 0 and connection.since_received_s < connection.since_sent_s


def _is_receiving(before: Connection, now: Connection | None) -> bool:
    """Whether a request still comes, of which nothing is answered."""
    if now is None or now.sent_bytes > before.sent_bytes or not _is_under_way(now):
        return False
    return now.unread_bytes > 0 or now.since_received_s < PAUSE_S


def _is_silent(connection: Connection, seconds: float) -> bool:
    """Whether nothing is in the queues, and nothing was sent or received for so long."""
    queued = connection.unread_bytes or connection.unsent_bytes
    return not queued and min(connection.since_sent_s, connection.since_received_s) >= seconds
