"""Connections of proxies to a worker that has no process at the moment: proxies do not notice that it has none."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from pytriton import forks
from pytriton.exceptions import ErrorCode
from pytriton.logs import get_logger
from pytriton.pool.process import ChildProcess
from pytriton.threads import keep_running
from pytriton.wire.channel import MAX_MESSAGE_BYTES, ChannelState, PeerGoneError
from pytriton.wire.connect import accept, go_on, unexpected_peer
from pytriton.wire.control import CONNECTION
from pytriton.wire.frames import BYE, KIND, REQUEST, SPILL, Frame, error_reply, unpack
from pytriton.wire.tensors import FrameError

__all__ = ["HeldConnections", "News"]

LOGGER = get_logger("pytriton.workers")

GREETING_TIMEOUT_S = 5.0
RETRY_S = 1.0
LONGEST_POLL_S = 3600.0
MOST_PROCESSES = 2  # that end before they have taken a connection; then its batch fails


class News(NamedTuple):
    """What has happened to the connections.

    Attributes:
        is_wanted: Something has come that a process is needed for.
        ended: For each connection that has ended, whether the server has dismissed the worker.
    """

    is_wanted: bool
    ended: list[bool]


class _Held:
    """One connection, as :meth:`pytriton.wire.channel.Channel.handed_over` describes it."""

    def __init__(self, descriptors: Sequence[int], state: ChannelState) -> None:
        connection, *self._memory = descriptors
        self.socket = socket.socket(fileno=connection)
        self.processes = 0  # that have ended while its batch waited
        self.deadline: float | None = None  # of what has come, once somebody has looked
        self._state = state

    def send_to(self, process: ChildProcess) -> None:
        process.send_descriptors(CONNECTION, [self.socket.fileno(), *self._memory], self._state)

    def kind(self) -> int | None:
        """The kind of the frame that has come; 0 if the connection has ended, None if there is nothing."""
        try:
            start = self.socket.recv(KIND + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return 0
        return start[KIND] if len(start) > KIND else 0

    def is_wanted(self) -> bool:
        """Whether something has come that a process is needed for: a batch, or what comes before one."""
        return self.kind() not in (None, 0, BYE)

    def has_batch(self) -> bool:
        """Whether a batch is the first that has come, which can be refused."""
        return self.kind() in (REQUEST, SPILL)

    def look(self) -> None:
        """Find the deadline of what has come; a batch has the latest of its requests, and all else none."""
        with suppress(OSError, FrameError):  # the process that gets it finds out
            kind = self.kind()
            self.deadline = None if kind is None else math.inf
            if kind == REQUEST:
                message = self.socket.recv(MAX_MESSAGE_BYTES, socket.MSG_PEEK)
                self.deadline = _last_deadline(unpack(memoryview(message)))

    def refuse(self, reason: str) -> None:
        """Answer the batch that has come with an error. Raises OSError, and changes nothing, without descriptors."""
        connection, arena, peer = _copies([self.socket.fileno(), *self._memory])
        self.deadline = None
        with closing(go_on(socket.socket(fileno=connection), arena, peer, self._state)) as channel:
            with suppress(OSError):  # the proxy has gone
                number, requests = (frame := channel.receive()).number, frame.requests
                del frame  # so that the proxy can use its memory again
                channel.send(error_reply(number, requests, reason, ErrorCode.UNAVAILABLE.value))
            self._state = channel.handed_over()[1]
        self.processes = 0

    def close(self) -> None:
        """Close this process's end. If no process has it, a proxy whose batch nobody has read sends that again."""
        self.socket.close()
        for descriptor in self._memory:
            os.close(descriptor)

    def abandon(self) -> None:
        forks.abandon(self.socket.fileno(), *self._memory)


def _copies(descriptors: Sequence[int]) -> list[int]:
    """Copies of all descriptors, or of none."""
    copies: list[int] = []
    try:
        for descriptor in descriptors:
            copies.append(os.dup(descriptor))
    except OSError:
        for copy in copies:
            os.close(copy)
        raise
    return copies


def _last_deadline(frame: Frame) -> float:
    """Of the requests of a batch, in :func:`time.monotonic` seconds; infinite if one has none."""
    details = json.loads(frame.metadata or b"{}")
    deadlines = [details.get(str(index), {}).get("deadline", math.inf) for index in range(frame.requests)]
    return max(deadlines, default=math.inf)


class HeldConnections:
    """Holds connections for the next process of a worker. One thread changes them; any may look, and :meth:`wake`.

    Requests that cannot wait until that process is ready are refused.

    Args:
        name: Of the worker, for the log.
        listener: The socket that proxies connect to.
    """

    def __init__(self, name: str, listener: socket.socket) -> None:
        self._name = name
        self._listener = listener
        self._held: list[_Held] = []
        self._lock = threading.Lock()
        self._woken = os.eventfd(0)
        self._ready_at: float | None = None  # when the process that starts is expected to be ready; None if none does
        self._refusing: threading.Thread | None = None  # while it starts
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, drop the connections."""
        self._lock = threading.Lock()
        for held in self._held:
            held.abandon()
        forks.abandon(self._woken)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._held)

    def is_wanted(self) -> bool:
        """Whether something has come that a process is needed for."""
        with self._lock:
            return any(held.is_wanted() for held in self._held)

    def take(self, descriptors: Sequence[int], state: ChannelState) -> None:
        """Hold a connection that a process has handed over, and close it then."""
        with self._lock:
            self._held.append(_Held(descriptors, state))

    def send_to(self, process: ChildProcess) -> None:
        """Hand all connections over to a process that is ready; :meth:`was_taken` is to be called for each."""
        self._refuse_no_more()
        for held in self._held:
            held.send_to(process)

    def was_taken(self) -> None:
        """The process serves the first connection that it has not served yet."""
        with self._lock:
            self._held.pop(0).close()

    def count_failure(self) -> None:
        """A process has ended by itself, or could not be started; :meth:`begin_start` answers what waits too long."""
        for held in self._held:
            held.processes += held.has_batch()

    def begin_start(self, start_s: float) -> None:
        """A process starts, and is expected to be ready after a time; then :meth:`send_to` is called.

        Batches for which too many processes have ended before are answered with an error.
        """
        self._refuse_no_more()
        for held in self._held:
            if held.processes >= MOST_PROCESSES and held.has_batch():
                self._answer(held, f"{held.processes} processes of the worker have ended as they started; see the log")
        if self._held:
            self._ready_at = time.monotonic() + start_s
            self._refusing = keep_running(lambda: self._refuse_while(start_s), f"pytriton-{self._name}-refusing")

    def _refuse_while(self, start_s: float) -> None:
        while (ready_at := self._ready_at) is not None:
            self._refuse(ready_at, start_s)
            deadline = min((held.deadline for held in self._held if held.deadline is not None), default=math.inf)
            self._poll([held.socket for held in self._held if held.deadline is None], deadline)

    def _refuse_no_more(self) -> None:
        if self._refusing is not None:
            self._ready_at = None
            self.wake()
            self._refusing.join()
            self._refusing = None
        for held in self._held:
            held.deadline = None

    def _refuse(self, ready_at: float, start_s: float) -> None:
        """Refuse batches whose deadlines will have passed when a process is ready, or have passed."""
        for held in self._held:
            if held.deadline is None:
                held.look()
            if held.deadline is not None and held.deadline < max(ready_at, time.monotonic()):
                self._answer(
                    held,
                    f"no worker is ready before the request's deadline: one starts, which took {start_s:.3g} s before; "
                    "try again later",
                )

    def _answer(self, held: _Held, reason: str) -> None:
        try:
            held.refuse(reason)
        except OSError as error:  # out of descriptors for a while
            self._retry_later("a request cannot be refused", error)

    def close(self) -> None:
        """Close all connections."""
        self._refuse_no_more()
        self._close([*self._held])
        with self._lock:
            os.close(self._woken)
            self._woken = -1

    def _close(self, ended: Sequence[_Held]) -> None:
        with self._lock:
            for held in ended:
                self._held.remove(held)
                held.close()

    def wake(self) -> None:
        """Have :meth:`wait` return. Thread-safe."""
        with self._lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def wait(self, start_s: float) -> News:
        """Wait until a batch comes, a connection ends, or :meth:`wake`. Connects proxies meanwhile.

        Args:
            start_s: What a start takes at least; a batch that cannot wait for so long is refused, and counts as come.
        """
        self._refuse_no_more()
        if self._listener.fileno() in self._poll([self._listener, *(held.socket for held in self._held)]):
            self._accept()
        kinds = [(held, held.kind()) for held in self._held]
        self._refuse(time.monotonic() + start_s, start_s)
        ended = [(held, kind == BYE) for held, kind in kinds if kind in (0, BYE)]
        self._close([held for held, _ in ended])
        return News(any(kind not in (None, 0, BYE) for _, kind in kinds), [dismissed for _, dismissed in ended])

    def _poll(self, sockets: Sequence[socket.socket], deadline: float = math.inf) -> list[int]:
        """Wait until something can be read from sockets, or a deadline, or :meth:`wake`; returns their descriptors."""
        poll = select.poll()
        for descriptor in (self._woken, *(each.fileno() for each in sockets)):
            poll.register(descriptor, select.POLLIN)
        left_s = min(LONGEST_POLL_S, max(0.0, deadline - time.monotonic()))
        ready = [descriptor for descriptor, _ in poll.poll(math.ceil(1000 * left_s))]
        if self._woken in ready:
            os.eventfd_read(self._woken)
        return ready

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
            with connection:
                if found := unexpected_peer(connection):
                    LOGGER.warning("worker %s: refused %s: only this user and root may connect", self._name, found)
                    return
                _, channel = accept(connection, GREETING_TIMEOUT_S)
                with closing(channel):
                    descriptors, state = channel.handed_over()
                    self.take(_copies(descriptors), state)
        except PeerGoneError as error:
            LOGGER.debug("worker %s: a proxy has gone: %s", self._name, error)
        except OSError as error:  # out of descriptors for a while
            self._retry_later("no proxy can connect", error)

    def _retry_later(self, what: str, error: OSError) -> None:
        LOGGER.warning("worker %s: %s, trying again: %s", self._name, what, error)
        poll = select.poll()  # descriptors may be above those of select()
        poll.register(self._woken, select.POLLIN)
        poll.poll(1000 * RETRY_S)
