"""Connections of proxies to a worker that has no process at the moment: proxies do not notice that it has none."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.pool.process import ChildProcess
from pytriton.wire.channel import ChannelState, PeerGoneError
from pytriton.wire.connect import accept, unexpected_peer
from pytriton.wire.control import CONNECTION
from pytriton.wire.frames import BYE, KIND

__all__ = ["HeldConnections", "News"]

LOGGER = get_logger("pytriton.workers")

GREETING_TIMEOUT_S = 5.0
RETRY_S = 1.0
MOST_PROCESSES = 2  # that end before they have taken a connection; then its proxy learns that the worker has died


class News(NamedTuple):
    """What has happened to the connections.

    Attributes:
        has_batch: A batch has come.
        ended: For each connection that has ended, whether the server has dismissed the worker.
    """

    has_batch: bool
    ended: list[bool]


class _Held:
    """One connection, as :meth:`pytriton.wire.channel.Channel.handed_over` describes it."""

    def __init__(self, descriptors: Sequence[int], state: ChannelState) -> None:
        connection, *self._memory = descriptors
        self.socket = socket.socket(fileno=connection)
        self.processes = 0  # that it was sent to
        self._state = state

    def send_to(self, process: ChildProcess) -> None:
        self.processes += 1
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

    def close(self) -> None:
        """Close this process's end. If no process has it, a proxy whose batch nobody has read sends that again."""
        self.socket.close()
        for descriptor in self._memory:
            os.close(descriptor)

    def abandon(self) -> None:
        forks.abandon(self.socket.fileno(), *self._memory)


class HeldConnections:
    """Holds connections for the next process of a worker. One thread changes them; any may look, and :meth:`wake`.

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

    def has_batch(self) -> bool:
        """Whether a batch has come."""
        with self._lock:
            return any(held.kind() not in (None, 0, BYE) for held in self._held)

    def take(self, descriptors: Sequence[int], state: ChannelState) -> None:
        """Hold a connection that a process has handed over, and close it then."""
        with self._lock:
            self._held.append(_Held(descriptors, state))

    def send_to(self, process: ChildProcess) -> None:
        """Hand all connections over to a process that starts; :meth:`was_taken` is to be called for each."""
        for held in self._held:
            held.send_to(process)

    def was_taken(self) -> None:
        """The process serves the first connection that it has not served yet."""
        with self._lock:
            self._held.pop(0).close()

    def give_up(self) -> None:
        """Close the connections that too many processes were to take: their proxies wait as for any dead worker."""
        self._close([held for held in self._held if held.processes >= MOST_PROCESSES])

    def close(self) -> None:
        """Close all connections."""
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

    def wait(self) -> News:
        """Wait until a batch comes, a connection ends, or :meth:`wake`. Connects proxies meanwhile."""
        poll = select.poll()
        for descriptor in (self._woken, self._listener.fileno(), *(held.socket.fileno() for held in self._held)):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll()]
        if self._woken in ready:
            os.eventfd_read(self._woken)
        if self._listener.fileno() in ready:
            self._accept()
        kinds = [(held, held.kind()) for held in self._held]
        ended = [(held, kind == BYE) for held, kind in kinds if kind in (0, BYE)]
        self._close([held for held, _ in ended])
        return News(any(kind not in (None, 0, BYE) for _, kind in kinds), [dismissed for _, dismissed in ended])

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
                    self.take([os.dup(each) for each in descriptors], state)
        except PeerGoneError as error:
            LOGGER.debug("worker %s: a proxy has gone: %s", self._name, error)
        except OSError as error:  # out of descriptors for a while
            LOGGER.warning("worker %s: no proxy can connect, trying again: %s", self._name, error)
            select.select([self._woken], [], [], RETRY_S)
