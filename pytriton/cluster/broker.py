"""One thread for the peers of an address, workers and proxies elsewhere, and for the sockets to their ends here."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytriton import forks
from pytriton.cluster.messages import PROTOCOL, Parts, decode, encode_forwarded, is_frame
from pytriton.cluster.router import Router
from pytriton.exceptions import PyTritonWorkerError
from pytriton.logs import get_logger
from pytriton.threads import keep_running
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.control import HELLO, PROBE, REFUSED
from pytriton.wire.frames import NO_REGION, Frame
from pytriton.wire.tensors import FrameError, Tensor
from pytriton.worker.interfaces import Channel

__all__ = ["Broker", "Connection", "Peer", "Service"]

LOGGER = get_logger("pytriton.workers")

PROBE_S = 0.2
MESSAGES = 32  # of peers, before connections are looked at again
LOGGED_REFUSALS = 100  # of different peers; further ones are not logged

_brokers: dict[str, Broker] = {}
_brokers_lock = threading.Lock()


class Service(ABC):
    """What peers join: a model whose workers are elsewhere, or the models of a program whose server is elsewhere.

    The broker's thread calls all methods.
    """

    @abstractmethod
    def matches(self, hello: dict[str, Any]) -> bool:
        """Whether a peer is for this service."""

    @abstractmethod
    def join(self, broker: Broker, identity: bytes, hello: dict[str, Any]) -> Peer:
        """Take a peer; raises whatever if what it said cannot be understood."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Now and then: do what is due, in :func:`time.monotonic` seconds."""


class Peer(ABC):
    """A worker, or a proxy, that has joined. The broker's thread calls all methods."""

    def __init__(self, broker: Broker, service: Service, identity: bytes) -> None:
        self.broker, self.service, self.identity = broker, service, identity

    def tell(self, kind: bytes, content: Any = None) -> None:
        """Send a message that is no frame."""
        self.broker.router.tell(self.identity, kind, content)

    def forward(self, frame: Frame, number: int) -> None:
        """Send on a frame of this machine, with another number."""
        self.broker.router.send(self.identity, encode_forwarded(frame, number))

    @abstractmethod
    def take(self, frame: Frame, rest: Parts) -> None:
        """Act on a frame; ``rest`` are the further parts of its message."""

    @abstractmethod
    def on_message(self, kind: bytes, parts: Parts) -> None:
        """Act on another message."""

    def probe(self) -> None:
        """Send a message, which tells whether the peer is there."""
        self.tell(PROBE)

    @abstractmethod
    def end(self, lost: bool) -> None:
        """The peer is forgotten: it is ``lost``, which means gone or refused, or the service goes."""


class Connection(ABC):
    """A socket to a proxy, or an instance, on this machine. It never waits for the other end.

    Attributes:
        outbox: What the socket has no room for yet. Credits, and congestion of streams, limit it.
    """

    def __init__(self, broker: Broker, channel: Channel) -> None:
        self.broker, self.channel = broker, channel
        self.descriptor = channel.fileno()
        self.outbox: deque[tuple[Frame, list[Tensor]]] = deque()
        self._room = select.poll()
        self._room.register(self.descriptor, select.POLLOUT)

    def is_free(self) -> bool:
        """Whether a frame can be sent without waiting."""
        return not self.outbox and bool(self._room.poll(0))

    def send(self, frame: Frame, tensors: list[Tensor]) -> None:
        """Send a frame, now or when there is room."""
        if self.is_free():
            self._send(frame, tensors)
        else:
            self.outbox.append((frame, tensors))
            self.broker.full.add(self)

    def flush(self) -> None:
        """Send what there is room for."""
        while self.outbox and self._room.poll(0):
            self._send(*self.outbox.popleft())

    def _send(self, frame: Frame, tensors: list[Tensor]) -> None:
        error = None
        try:
            self.channel.send(frame, tensors)
        except (ArenaFullError, FrameError, PeerGoneError) as failure:
            error = failure
        self.sent(frame, error)

    @abstractmethod
    def read(self) -> None:
        """Act on what has arrived.

        Raises:
            PeerGoneError, FrameError: The connection has ended.
        """

    @abstractmethod
    def sent(self, frame: Frame, error: Exception | None) -> None:
        """A frame was sent, or could not be; that the other end has gone is told by reading, too."""

    @abstractmethod
    def ended(self, error: BaseException) -> None:
        """The connection has ended, and is forgotten."""


class Broker:
    """Listens on one address for the peers of any number of services, until the last one has left it.

    Attributes:
        address: Where it listens.
        full: Connections with something in their outbox.
    """

    @classmethod
    def enter(
        cls, service: Service, listen: str, heartbeat_s: float, key: str | Path | None, peer_keys: str | Path | None
    ) -> Broker:
        """The broker of an address, which has the service from now on. Arguments: those of :class:`Router`.

        Raises:
            PyTritonWorkerError: It cannot listen, or a service with other keys listens there.
        """
        with _brokers_lock:
            broker = _brokers.get(listen)
            if broker is None:
                broker = cls(service, Router(listen, heartbeat_s, key, peer_keys), (key, peer_keys))
                _brokers[broker.address] = broker
            elif broker._keys != (key, peer_keys):
                raise PyTritonWorkerError(f"another model listens on {listen} with other keys")
            else:
                broker._services.append(service)
            return broker

    def __init__(self, service: Service, router: Router, keys: tuple[str | Path | None, ...]) -> None:
        self.router, self.address, self._keys = router, router.address, keys
        self.full: set[Connection] = set()
        self._services = [service]
        self._peers: dict[bytes, Peer] = {}
        self._refused: set[str] = set()
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopped = self._has_more = False
        self._next_probe = 0.0
        self._waking = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._poll.register(router.fileno(), select.EPOLLIN)
        self._poll.register(self._waking, select.EPOLLIN)
        forks.register(self)
        self._thread = keep_running(self._run, f"pytriton-{self.address}")

    def after_fork(self) -> None:
        """In a forked child there is no thread, and pyzmq leaves the parent's sockets alone."""
        _brokers.clear()

    # From other threads:

    def leave(self, service: Service) -> None:
        """Forget a service, after telling its peers."""
        with suppress(PeerGoneError):
            self.call(partial(self._forget, service)).result()
        with _brokers_lock:
            if self._services or _brokers.get(self.address) is not self:
                return
            del _brokers[self.address]
        with suppress(PeerGoneError):
            self.call(self._stop).result()
        self._thread.join()
        os.close(self._waking)

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have the broker's thread call a function; PeerGoneError if it has ended."""
        done: Future[Any] = Future()
        self._calls.append((function, done))
        if self._thread.is_alive():
            os.eventfd_write(self._waking, 1)
        else:
            self._refuse_calls()
        return done

    def _refuse_calls(self) -> None:
        while self._calls:
            with suppress(IndexError):
                self._calls.popleft()[1].set_exception(PeerGoneError(f"nobody listens on {self.address} any more"))

    # On the broker's thread:

    def attach(self, connection: Connection) -> None:
        """Serve a connection until it ends."""
        self._connections[connection.descriptor] = connection
        self._poll.register(connection.descriptor, select.EPOLLIN)
        self._serve(connection, select.EPOLLIN)

    def forget(self, peer: Peer) -> None:
        """Take nothing from a peer any more."""
        self._peers.pop(peer.identity, None)

    def _forget(self, service: Service) -> None:
        if service in self._services:
            self._services.remove(service)  # first, so that no peer joins it behind those that are told
        for peer in [peer for peer in self._peers.values() if peer.service is service]:
            self.forget(peer)
            peer.end(lost=False)

    def _stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        while not self._stopped:
            self._turn()
        for connection in [*self._connections.values()]:
            self._detach(connection, PeerGoneError(f"nobody listens on {self.address} any more"))
        self._poll.close()
        self.router.close()
        self._refuse_calls()

    def _turn(self) -> None:
        """Wait for connections, peers and calls, and serve those that have come."""
        arrived = self._has_more or self.router.has_arrived()
        for descriptor, events in self._poll.poll(0 if arrived else PROBE_S):
            connection = self._connections.get(descriptor)
            if connection is not None:
                self._serve(connection, events)
            elif descriptor == self._waking:
                self._make_calls()
            else:
                arrived = True
        if arrived:
            self._has_more = self._receive()
        for connection in self.full:
            self._poll.modify(connection.descriptor, select.EPOLLIN | select.EPOLLOUT)
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + PROBE_S
            for peer in self._peers.values():
                peer.probe()
            for service in self._services:
                service.check(now)
        while self.router.gone:
            self._lose(self.router.gone.pop())

    def _make_calls(self) -> None:
        os.eventfd_read(self._waking)
        while self._calls:
            function, done = self._calls.popleft()
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                connection.flush()
                if not connection.outbox:
                    self.full.discard(connection)
                    self._poll.modify(connection.descriptor, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                connection.read()
        except (PeerGoneError, FrameError) as error:
            self._detach(connection, error)
        except Exception as error:  # the others are served on
            LOGGER.exception("a connection to a proxy or an instance failed")
            self._detach(connection, error)

    def _detach(self, connection: Connection, error: BaseException) -> None:
        del self._connections[connection.descriptor]
        self._poll.unregister(connection.descriptor)
        self.full.discard(connection)
        connection.ended(error)

    def _receive(self) -> bool:
        """Act on what peers have sent; whether there may be more."""
        for _ in range(MESSAGES):
            message = self.router.receive()
            if message is None:
                return False
            self._take(*message)
        return True

    def _take(self, identity: bytes, first: bytes, *parts: Any) -> None:
        """Act on a message; a peer that sends one which cannot be read is lost."""
        peer = self._peers.get(identity)
        try:
            if peer is None:
                if first == HELLO:
                    self._welcome(identity, json.loads(bytes(parts[0])))
            elif is_frame(first):
                frame = decode([first, *parts])
                peer.take(frame, [*parts[frame.region != NO_REGION :]])
            else:
                peer.on_message(first, [*parts])
        except Exception as error:  # whatever it sent: the others are served on
            LOGGER.debug("what a peer sent cannot be read", exc_info=True)
            self.refuse(identity, f"what it sent cannot be read: {error}", "peer")

    def _welcome(self, identity: bytes, hello: dict[str, Any]) -> None:
        kind = "proxy" if "relay" in hello else "worker"
        who = f"{kind} of model {hello['model']!r} on {hello['host']}"
        service = next((service for service in self._services if service.matches(hello)), None)
        if hello["protocol"] != PROTOCOL:
            self.refuse(
                identity,
                f"it speaks version {hello['protocol']} of the protocol (pytriton {hello.get('package')}), this side "
                f"{PROTOCOL} (pytriton {version('pytriton')}); install the same version on both",
                who,
                final=True,
            )
        elif service is not None:
            self._peers[identity] = service.join(self, identity, hello)
        elif kind == "proxy":
            self.refuse(identity, "another program had its model loaded", who)
        else:
            have = ", ".join(map(str, self._services))
            self.refuse(identity, f"no such model listens here; there is: {have}", who)

    def refuse(self, identity: bytes, reason: str, who: str, final: bool = False) -> None:
        """Tell a peer why it cannot join or stay; a worker tries again, unless that is ``final``."""
        if who not in self._refused and len(self._refused) < LOGGED_REFUSALS:
            self._refused.add(who)
            LOGGER.warning("refused a %s: %s", who, reason)
        self.router.tell(identity, REFUSED, [reason, final])
        self._lose(identity)

    def _lose(self, identity: bytes) -> None:
        peer = self._peers.pop(identity, None)
        if peer is not None:
            peer.end(lost=True)
