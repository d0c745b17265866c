"""Proxies of a server elsewhere: each is connected with the socket of a model instance, as a proxy here would be.

Nothing here looks at a tensor. The broker's thread does all but connecting, for which it may have to wait.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytriton import forks
from pytriton.cluster.broker import Broker, Connection, Peer, Service
from pytriton.cluster.keys import load_key
from pytriton.cluster.messages import Parts
from pytriton.cluster.options import ProxyListener
from pytriton.introspection import override
from pytriton.wire import connect as connecting
from pytriton.wire.channel import Channel, PeerGoneError, UnreadError, gone_message
from pytriton.wire.control import BYE, REFUSED, WELCOME
from pytriton.wire.frames import (
    ASK,
    CANCEL,
    LIMIT,
    NO_REGION,
    RELEASE,
    REQUEST,
    Frame,
    error_reply,
    received_tensors,
)
from pytriton.wire.tensors import FrameError

__all__ = ["PROXY_FILES", "ProxyRelay"]

PROXY_FILES = "__init__.py", "channel.py", "messages.py", "proxy.py"  # of this package; they run in the server
_SOCKET = re.compile(r"\d+\.\d+")


class ProxyRelay(Service):
    """The models of a program whose server is elsewhere.

    Args:
        options: Where to listen, and who may connect.
        sockets: Folder of the instances' sockets.

    Attributes:
        description: What a proxy has to know to connect; for JSON.

    Raises:
        PyTritonWorkerError: It cannot listen there.
        PyTritonBadParameterError: There is no key in a file.
    """

    def __init__(self, options: ProxyListener, sockets: Path) -> None:
        self._sockets = sockets
        self._id = uuid4().hex
        program_key = None if options.key is None else load_key(Path(options.key), secret=True)[0].decode()
        self._broker = Broker.enter(self, options.listen, options.heartbeat_s, options.key, options.proxy_keys)
        self.description = {
            "address": options.address or self._broker.address,
            "key": None if options.proxy_key is None else str(options.proxy_key),
            "program_key": program_key,
            "heartbeat_s": options.heartbeat_s,
            "relay": self._id,
        }

    def close(self) -> None:
        """Stop listening; the proxies' requests fail. May be called twice."""
        self._broker.leave(self)

    @override
    def matches(self, hello: dict[str, Any]) -> bool:
        return hello.get("relay") == self._id

    @override
    def join(self, broker: Broker, identity: bytes, hello: dict[str, Any]) -> JoinedProxy:
        if not _SOCKET.fullmatch(hello["socket"]):
            raise ValueError(f"{hello['socket']!r} is no name of a socket")
        return JoinedProxy(broker, self, identity, str(self._sockets / hello["socket"]), hello)

    @override
    def check(self, now: float) -> None:
        """Nothing is due."""


@dataclass(eq=False)
class Batch:
    """A batch whose last reply the proxy has not got yet."""

    frame: Frame
    connection: InstanceConnection | None = None
    sent: bool = False  # until then, it may still be sent over another connection
    read: bool = False  # the worker has asked about it


class JoinedProxy(Peer):
    """A proxy that has joined.

    Args:
        path: Of the instance's socket.
        hello: What the proxy told: ``model``, ``instance``, and ``serial`` if it waits for each reply.
    """

    def __init__(self, broker: Broker, relay: ProxyRelay, identity: bytes, path: str, hello: dict[str, Any]) -> None:
        super().__init__(broker, relay, identity)
        self.batches: dict[int, Batch] = {}
        self.streamed: deque[InstanceConnection] = deque()  # with replies that the proxy has not taken yet
        self._path = path
        self._told = {"model": str(hello["model"]), "instance": str(hello["instance"])}
        self._is_serial = bool(hello["serial"])
        self._waiting: deque[Frame] = deque()
        self._connections: set[InstanceConnection] = set()
        self._newest: InstanceConnection | None = None  # as long as it takes batches
        self._has_joined = self._has_ended = self._is_dismissed = False  # by the server, which lets the model go
        forks.register(self)
        self._connect(connecting.CONNECT_TIMEOUT_S, 0.0)

    def after_fork(self) -> None:
        """In a forked child, drop the connections."""
        forks.abandon(*(connection.descriptor for connection in self._connections))

    @override
    def take(self, frame: Frame, rest: Parts) -> None:
        if frame.kind == RELEASE:
            for _ in range(min(frame.number, len(self.streamed))):
                self.streamed.popleft().channel.release(taken=True)
            return
        if frame.kind == REQUEST:
            self.batches[frame.number] = Batch(frame)
        self._waiting.append(frame)
        self._send_waiting()

    @override
    def on_message(self, kind: bytes, parts: Parts) -> None:
        if kind != BYE:
            raise ValueError(f"it has joined, and says {kind!r}")
        self.broker.forget(self)
        self._is_dismissed = True
        self.end(lost=False)

    @override
    def probe(self) -> None:
        super().probe()
        if not self._is_serial:  # else what is unread at a worker's end would not always be a batch
            for connection in self._connections:
                connection.channel.release(at_once=True)

    @override
    def end(self, lost: bool) -> None:
        self._has_ended = True
        self._waiting.clear()
        for connection in self._connections:
            self._shut_down(connection.channel)

    def _shut_down(self, channel: Channel) -> None:
        if self._is_dismissed:
            channel.say_goodbye()
        channel.shutdown()

    def _connect(self, timeout_s: float, patience_s: float) -> None:
        """Connect to the instance, on a thread of its own."""
        self._is_connecting = True
        arguments = timeout_s, patience_s
        threading.Thread(target=self._connect_now, args=arguments, name="pytriton-forward", daemon=True).start()

    def _connect_now(self, timeout_s: float, patience_s: float) -> None:
        channel, error = None, None
        try:
            channel = connecting.connect(self._path, self._told, timeout_s, patience_s)
        except (PeerGoneError, OSError) as failure:
            error = failure
        try:
            self.broker.call(lambda: self._connected(channel, error)).result()
        except PeerGoneError:
            if channel is not None:
                channel.close()

    def _connected(self, channel: Channel | None, error: Exception | None) -> None:
        self._is_connecting = False
        if channel is None:
            if self._has_joined:
                self._fail(self._waiting.popleft(), gone_message(error), "UNAVAILABLE")
            else:
                self.tell(REFUSED, [str(error), True])
                self.broker.forget(self)
                return
        elif self._has_ended:
            self._shut_down(channel)
            channel.close()
        else:
            self._newest = InstanceConnection(self.broker, channel, self)
            self._connections.add(self._newest)
            if not self._has_joined:
                self._has_joined = True
                self.tell(WELCOME, {})
            self.broker.attach(self._newest)
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send what waits for a connection, after connecting if need be."""
        while self._waiting and not self._is_connecting:
            batch = self.batches.get(self._waiting[0].number)
            if self._waiting[0].kind == CANCEL:
                cancel = self._waiting.popleft()
                if batch is not None and batch.connection is not None:
                    frame = Frame(CANCEL, cancel.number, cancel.requests, metadata=cancel.metadata)
                    batch.connection.send(frame, [])
            elif self._newest is None:
                self._connect(connecting.RECONNECT_TIMEOUT_S, connecting.PATIENCE_S)
            else:
                frame = self._waiting.popleft()
                if batch is not None:
                    batch.connection, frame.region = self._newest, NO_REGION
                    self._newest.send(frame, received_tensors(frame))

    def sent(self, connection: InstanceConnection, frame: Frame, error: Exception | None) -> None:
        """As :meth:`Connection.sent`. An instance that takes nothing any more may still answer what it has."""
        batch = self.batches.get(frame.number)
        if frame.kind != REQUEST or batch is None:
            return
        batch.sent = error is None
        if isinstance(error, PeerGoneError):
            self._send_again(connection, batch)
        elif error is not None:
            self._fail(frame, f"{type(error).__name__}: {error}", "INTERNAL")

    def _send_again(self, connection: InstanceConnection, batch: Batch) -> None:
        """Send a batch that nobody has read over another connection."""
        if self._newest is connection:
            self._newest = None
        batch.connection, batch.sent = None, False
        self._waiting.append(batch.frame)

    def reply(self, connection: InstanceConnection, frame: Frame) -> None:
        """Send a reply to the proxy."""
        batch = self.batches.get(frame.number)
        if frame.kind != LIMIT:
            if batch is None or batch.connection is not connection:
                raise FrameError("the reply belongs to no batch")
            if frame.kind == ASK:
                batch.read = True
            elif frame.more:
                self.streamed.append(connection)
            else:
                del self.batches[frame.number]
        self.forward(frame, frame.number)

    def ended(self, connection: InstanceConnection, error: BaseException) -> None:
        """Fail the batches of a connection that has ended; one that the worker has not read goes to the next one."""
        self._connections.discard(connection)
        if self._newest is connection:
            self._newest = None
        if self._has_ended:
            return
        code = "UNAVAILABLE" if isinstance(error, PeerGoneError) else "INTERNAL"
        message = gone_message(error) if isinstance(error, PeerGoneError) else f"{type(error).__name__}: {error}"
        for batch in [batch for batch in self.batches.values() if batch.connection is connection]:
            if not batch.sent or (isinstance(error, UnreadError) and self._is_serial and not batch.read):
                self._send_again(connection, batch)
            else:
                self._fail(batch.frame, message, code)
        self._send_waiting()

    def _fail(self, frame: Frame, message: str, code: str) -> None:
        if self.batches.pop(frame.number, None) is not None:
            self.forward(error_reply(0, frame.requests, message, code), frame.number)


class InstanceConnection(Connection):
    """A connection to the instance of a proxy; there is another one while the instance's process is replaced."""

    channel: Channel

    def __init__(self, broker: Broker, channel: Channel, proxy: JoinedProxy) -> None:
        super().__init__(broker, channel)
        self._proxy = proxy

    @override
    def read(self) -> None:
        while (frame := self.channel.receive_ready()) is not None:
            self._proxy.reply(self, frame)

    @override
    def sent(self, frame: Frame, error: Exception | None) -> None:
        self._proxy.sent(self, frame, error)

    @override
    def ended(self, error: BaseException) -> None:
        self._proxy.ended(self, error)
        with suppress(OSError):
            self.channel.close()
