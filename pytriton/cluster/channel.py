"""A worker's connection to the server's side, over ZeroMQ."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import zmq

from pytriton.cluster.messages import BYE, FRAME, NUMBER, PROBE, TAKEN, Parts, configure, decode, encode, lay_out
from pytriton.wire.channel import MAX_AHEAD, PeerGoneError
from pytriton.wire.frames import RELEASE, REQUEST, Frame
from pytriton.wire.tensors import Tensor

__all__ = ["RemoteChannel"]

COPY_BELOW_BYTES = 64 * 1024
POLL_S = 0.1
LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class RemoteChannel:
    """A worker's connection to the server's side, for one model. Methods: see the protocol ``Channel``.

    One thread receives, any may send. A lost connection ends the channel; the worker opens another one.

    Args:
        context: Of ZeroMQ.
        address: ``tcp://host:port`` or ``ipc://path``.
        heartbeat_s: Seconds between two heartbeats.
        secure: Sets the keys of the socket.

    Attributes:
        ended_well: Whether the server's side said good-bye.
        failure: Why the connection was lost or refused, for the log.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        heartbeat_s: float,
        secure: Callable[[zmq.Socket[bytes]], None],
    ) -> None:
        self.ended_well = False
        self.failure = "the connection was lost"
        self._lock = threading.Lock()  # of the sockets, which libzmq lets one thread use at a time
        self._ahead = 0
        self._closed = False
        self._socket = context.socket(zmq.DEALER)
        configure(self._socket, heartbeat_s)
        secure(self._socket)
        self._socket.setsockopt(zmq.ROUTING_ID, uuid4().bytes)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._monitor = self._socket.get_monitor_socket(LOST)
        self._epoll = select.epoll()
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        for descriptor in (self._socket.FD, self._monitor.FD, self._woken.fileno()):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._socket.connect(address)

    def fileno(self) -> int:
        """A descriptor that is readable when something may have arrived."""
        return self._epoll.fileno()

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until the server's side has accepted the connection; False at the timeout.

        Raises:
            PeerGoneError: It refused it, or :meth:`shutdown`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._check_open()
                if self._events() & zmq.POLLOUT:
                    return True
                self._check_monitor()
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._wait(min(remaining_s, POLL_S))

    def tell(self, kind: bytes, content: Any = None) -> None:
        """Send a message that is no frame; ``content`` travels as JSON."""
        self._send([kind, json.dumps(content).encode()])

    def hear(self, timeout_s: float) -> tuple[bytes, Any] | None:
        """The next message that is no frame, and its content from JSON; None at the timeout.

        Raises:
            PeerGoneError: The connection was lost.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            parts = self._next()
            if parts is not None and parts[0].bytes != PROBE:
                return parts[0].bytes, json.loads(parts[1].bytes)
            if parts is None and not self._wait(deadline - time.monotonic()):
                return None

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """As :meth:`Channel.send`."""
        self._ahead += frame.more
        self._send(encode(frame, frame.number, tensors, lay_out(tensors)))

    def _send(self, parts: Parts) -> None:
        with self._lock:
            self._check_open()
            try:
                self._socket.send_multipart(
                    parts, zmq.NOBLOCK, copy=len(parts) < 3 or parts[2].nbytes < COPY_BELOW_BYTES
                )
            except zmq.ZMQError as error:
                raise PeerGoneError(str(error)) from error
            # Sending may have noticed what has arrived, of which the socket's descriptor tells once.
            arrived = self._events() & zmq.POLLIN
        if arrived:
            self._notify()

    def _events(self) -> int:
        events = self._socket.get(zmq.EVENTS)
        assert isinstance(events, int)
        return events

    def _notify(self) -> None:
        with suppress(OSError):
            self._waking.send(b"\0")

    def receive(self) -> Frame:
        """As :meth:`Channel.receive`."""
        while (frame := self.receive_ready()) is None:
            self._wait(None)
        return frame

    def _wait(self, timeout_s: float | None) -> bool:
        return bool(self._epoll.poll(None if timeout_s is None else max(0.0, timeout_s)))

    def receive_ready(self) -> Frame | None:
        """As :meth:`Channel.receive_ready`."""
        while (parts := self._next()) is not None:
            kind = parts[0].bytes
            if kind == BYE:
                self.ended_well = True
                raise PeerGoneError("the server's side needs this worker no more")
            if kind != FRAME:
                continue
            frame = decode(parts)
            if frame.kind == RELEASE:
                self._ahead -= frame.number
            elif frame.kind == REQUEST:
                self._send([TAKEN, NUMBER.pack(frame.number)])
                frame.data = frame.data.copy()  # the callable may write to its inputs
            return frame
        return None

    def _next(self) -> list[zmq.Frame] | None:
        """The next message, if there is one."""
        with self._lock:
            self._check_open()
            with suppress(BlockingIOError):
                self._woken.recv(4096)
            try:
                return self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._check_monitor()
                return None
            except zmq.ZMQError as error:
                raise PeerGoneError(str(error)) from error

    def _check_open(self) -> None:
        if self._closed:
            raise PeerGoneError("the connection was closed")

    def _check_monitor(self) -> None:
        try:
            event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        (number,) = struct.unpack_from("<H", event)
        if number != zmq.EVENT_DISCONNECTED:
            self.failure = "the server's side refused the connection: check the keys"
        raise PeerGoneError(self.failure)

    def is_congested(self) -> bool:
        """As :meth:`Channel.is_congested`."""
        return self._ahead >= MAX_AHEAD

    def release(self, *, taken: bool = False, at_once: bool = False) -> None:
        """Does nothing: inputs are this side's own memory."""

    def shutdown(self) -> None:
        """As :meth:`Channel.shutdown`."""
        self._closed = True
        self._notify()

    def close(self) -> None:
        """As :meth:`Channel.close`."""
        with self._lock:
            self._closed = True
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._epoll.close()
            self._waking.close()
            self._woken.close()
