"""A worker's connection to the server's side, over ZeroMQ."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import zmq

from ..wire.channel import MAX_AHEAD, PeerGoneError
from ..wire.control import BYE, CALL, HELLO, OBSERVE, PROBE, REFUSED, RESULT, TAKEN, WELCOME
from ..wire.frames import RELEASE, REQUEST, Frame
from ..wire.tensors import FrameError, Tensor
from .messages import NUMBER, PROGRESS, PROTOCOL, Parts, configure, decode, encode, has_message, is_frame, receive, send

__all__ = ["RefusedError", "RemoteChannel"]

POLL_S = 0.1
MOST_US = 0xFFFFFFFF
SMALL_PARTS = 1  # of what the server's side sends: a frame or a word
LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class RefusedError(PeerGoneError):
    """The other side refused this one.

    Attributes:
        is_final: Whether another attempt would not change that.
    """

    def __init__(self, reason: str, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class RemoteChannel:
    """A worker's connection to the server's side, for one model. Methods: see the protocol ``Channel``.

    One thread receives, any may send. A lost connection ends the channel; the worker opens another one.

    Args:
        address: ``tcp://host:port`` or ``ipc://path``.
        heartbeat_s: Seconds between two heartbeats.
        secure: Sets the keys of the socket.
        on_observe: Called when the server's side wants reports of batches.

    Attributes:
        ended_well: Whether the server's side said good-bye.
        failure: Why the connection was lost or refused, for the log.
        on_answer: Called with each answer to a call, by the thread that has received it; it must not wait.
        awaits_answers: Whether another thread calls :meth:`read_ahead` when a descriptor becomes readable.
        descriptors: They tell that thread that something may have arrived, or that the connection may be lost.
    """

    dismissed = "the server's side needs this worker no more"
    refused = "the server's side refused the connection: check the keys"

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        heartbeat_s: float,
        secure: Callable[[zmq.Socket[bytes]], None],
        on_observe: Callable[[], None],
    ) -> None:
        self.ended_well = False
        self._address = address
        self._on_observe = on_observe
        self.failure = "the connection was lost"
        self._lock = threading.Lock()  # of the sockets, which libzmq lets one thread use at a time
        self._ahead = 0
        self.on_answer: Callable[[Frame], object] = lambda frame: None
        self.awaits_answers = self._is_lost = False
        self._read: deque[Parts] = deque()  # what was read ahead
        self._next: Frame | None = None  # a frame that has arrived while another one was answered
        self._is_told = False  # that it is taken
        self._begun: dict[int, float] = {}  # when the batches that are not answered were taken
        self._closed = self._is_polled = False
        self._is_watched = True  # a thread waits, or will without looking again
        self._socket = context.socket(zmq.DEALER)
        configure(self._socket, heartbeat_s)
        secure(self._socket)
        self._socket.setsockopt(zmq.ROUTING_ID, uuid4().bytes)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._monitor = self._socket.get_monitor_socket(LOST)
        has_message(self._monitor)  # the descriptor tells only of what comes after a look
        self._monitor_descriptor = self._monitor.FD
        self.descriptors = self._socket.FD, self._monitor_descriptor
        self._epoll = select.epoll()
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for descriptor in (*self.descriptors, self._woken):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._socket.connect(address)

    def fileno(self) -> int:
        """A descriptor that is readable when something may have arrived."""
        self._is_polled = True
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
                if int(self._socket.get(zmq.EVENTS)) & zmq.POLLOUT:
                    return True
                self._check_monitor()
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._wait(min(remaining_s, POLL_S))

    def tell(self, kind: bytes, content: Any = None) -> None:
        """Send a message that is no frame; ``content`` travels as JSON."""
        self._send([kind, json.dumps(content).encode()])

    def join(self, hello: dict[str, Any], timeout_s: float) -> Any:
        """Tell who this side is; returns what the other side has to say of its model, or None at the timeout.

        Raises:
            RefusedError: It is refused.
            PeerGoneError: The connection was lost.
        """
        self.tell(HELLO, {"protocol": PROTOCOL, "host": socket.gethostname(), **hello})
        answer = self.receive_message(timeout_s)
        if answer is None:
            return None
        kind, content = answer
        if kind == REFUSED:
            reason, is_final = content
            raise RefusedError(f"refused by {self._address}: {reason}", is_final)
        if kind != WELCOME:
            raise PeerGoneError(f"the other side says {kind!r} instead of welcoming this one")
        return content

    def receive_message(self, timeout_s: float) -> tuple[bytes, Any] | None:
        """The next message that is no frame, and its content from JSON; None at the timeout.

        Raises:
            PeerGoneError: The connection was lost.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                parts = self._receive()
            if parts is not None and parts[0] != PROBE:
                return parts[0], json.loads(bytes(parts[1]))
            if parts is None and not self._wait(deadline - time.monotonic()):
                return None

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """As :meth:`Channel.send`. A last reply also tells how long it took, and that the next batch is taken."""
        self._ahead += frame.more
        parts = encode(frame, tensors)
        with self._lock:
            if not frame.more and (begun := self._begun.pop(frame.number, None)) is not None:
                busy_us = int(1e6 * (time.monotonic() - begun))
                parts.append(PROGRESS.pack(min(busy_us, MOST_US), self._take_next()))
            self._send_locked(parts)
            self._notify_if_arrived()

    def _take_next(self) -> int:
        """Take the next batch, if it has arrived; its number, or 0."""
        if self._next is not None:
            return 0
        try:
            self._next = self._receive_frame()
        except FrameError as error:  # which is not the reply's
            raise PeerGoneError(f"the server's side sent a bad message: {error}") from error
        self._is_told = self._next is not None and self._next.kind == REQUEST
        return self._next.number if self._next is not None and self._is_told else 0

    def send_call(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """Send a frame that concerns a call of the callable."""
        self._send([CALL, *encode(frame, tensors)])

    def _send(self, parts: Parts) -> None:
        with self._lock:
            self._send_locked(parts)
            self._notify_if_arrived()

    def _send_locked(self, parts: Parts) -> None:
        self._check_open()
        try:
            send(self._socket, parts)
        except zmq.ZMQError as error:
            raise PeerGoneError(str(error)) from error

    def _notify_if_arrived(self) -> None:
        """Wake who waits: sending may have noticed what has arrived, of which the socket's descriptor tells once."""
        if self.awaits_answers:
            self._read_ahead()
        if self._is_watched and (self._next is not None or self._read or has_message(self._socket)):
            self._notify()

    def read_ahead(self) -> None:
        """Take the answers that have arrived, and keep what else has for the thread that receives it.

        Raises:
            PeerGoneError: The connection was lost.
        """
        with self._lock:
            self._check_open()
            self._check_monitor()
            self._notify_if_arrived()

    def _read_ahead(self) -> None:
        while (parts := self._receive_unread()) is not None:
            self._read.append(parts)

    def _notify(self) -> None:
        os.eventfd_write(self._woken, 1)

    def is_handed_over(self) -> bool:
        """Never: the connection is the process's own."""
        return False

    def receive(self, between_batches: bool = False) -> Frame:
        """As :meth:`Channel.receive`; the connection is never handed over."""
        while (frame := self._take(waits=True)) is None:
            self._wait(None)
        return frame

    def receive_ready(self) -> Frame | None:
        """As :meth:`Channel.receive_ready`."""
        frame = self._take()
        if frame is None:
            self._wait(0)
        return frame

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait until something may have arrived; False at the timeout.

        Raises:
            PeerGoneError: The connection was lost, or :meth:`shutdown`.
        """
        ready = self._epoll.poll(None if timeout_s is None else max(0.0, timeout_s))
        with self._lock:
            self._check_open()
            for descriptor, _ in ready:
                if descriptor == self._woken:
                    os.eventfd_read(self._woken)
                elif descriptor == self._monitor_descriptor:
                    self._check_monitor()
        return bool(ready)

    def _take(self, waits: bool = False) -> Frame | None:
        """The next frame that has arrived, after telling that it is taken; ``waits`` if the caller waits for others."""
        with self._lock:
            frame, self._next = self._next, None
            is_told, self._is_told = self._is_told, False
            if frame is None:
                frame = self._receive_frame()
            if frame is not None and frame.kind == REQUEST:
                self._begun[frame.number] = time.monotonic()
                if not is_told:
                    self._send_locked([TAKEN, NUMBER.pack(frame.number)])
            self._is_watched = self._is_polled or (waits and frame is None)
            if self.awaits_answers:
                self._notify_if_arrived()
        return frame

    def _receive_frame(self) -> Frame | None:
        """The next frame that has arrived; acts on other messages."""
        while (parts := self._receive()) is not None:
            kind = parts[0]
            if kind == BYE:
                self.ended_well = True
                raise PeerGoneError(self.dismissed)
            if kind == OBSERVE:
                self._on_observe()
            elif is_frame(kind):
                frame = decode([bytearray(kind), *parts[1:]])  # the callable may write to its inputs
                if frame.kind == RELEASE:
                    self._ahead -= frame.number
                return frame
        return None

    def _receive(self) -> Parts | None:
        """The next message that is no answer."""
        return self._read.popleft() if self._read else self._receive_unread()

    def _receive_unread(self) -> Parts | None:
        self._check_open()
        try:
            while has_message(self._socket):
                parts = receive(self._socket, SMALL_PARTS)
                if parts[0] != RESULT:
                    return parts
                self.on_answer(decode(parts[1:]))
        except zmq.ZMQError as error:
            raise PeerGoneError(str(error)) from error
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise PeerGoneError("the connection was closed")
        if self._is_lost:
            raise PeerGoneError(self.failure)

    def _check_monitor(self) -> None:
        try:
            event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        (number,) = struct.unpack_from("<H", event)
        if number != zmq.EVENT_DISCONNECTED:
            self.failure = self.refused
        self._is_lost = True
        self._notify()  # the thread that receives may be another one
        raise PeerGoneError(self.failure)

    def is_congested(self) -> bool:
        """As :meth:`Channel.is_congested`."""
        return self._ahead >= MAX_AHEAD

    def release(self, *, taken: bool = False, at_once: bool = False) -> None:
        """Does nothing: inputs are this side's own memory."""

    def shutdown(self) -> None:
        """As :meth:`Channel.shutdown`."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._notify()

    def close(self) -> None:
        """As :meth:`Channel.close`."""
        with self._lock:
            self._closed = True
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()
            self._epoll.close()
            os.close(self._woken)
