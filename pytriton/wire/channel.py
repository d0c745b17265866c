"""One connection between a proxy and a worker: frames on a SEQPACKET Unix socket, large tensors through two arenas.

The socket also tells of the peer's death: the kernel closes it, whatever killed the process.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .arena import Arena, ArenaFullError, map_shared
from .frames import BYE, INLINE_LIMIT_BYTES, NO_REGION, RELEASE, SPILL, Frame, pack, unpack
from .tensors import ALIGN, FrameError, Tensor, data_bytes, tensor

MAX_MESSAGE_BYTES = 64 * 1024
MAX_RELEASED = 1024
MAX_UNRELEASED_BYTES = 64 << 20
MAX_AHEAD = 32
TELL_TAKEN = 8
TIME = struct.Struct("@ll")  # struct timeval


class PeerGoneError(ConnectionError):
    """The other side closed the connection or died."""


class UnreadError(PeerGoneError):
    """It died before it had read what was sent last: the kernel tells, because that was still in its socket."""


class HandOverError(PeerGoneError):
    """Another process of this side goes on with the connection, from here on."""


def gone_message(reason: object) -> str:
    """What the requests of a worker are told that has no process any more."""
    return f"the inference callable's process is gone: {reason}"


class ChannelState(NamedTuple):
    """What a process has to know to go on with the connection of another one.

    Attributes:
        regions: Of this side's arena, that the peer has not released.
        released: Offsets in the peer's arena, of which it has not been told.
        taken: Streamed replies, in all; the peer knows of ``told``.
        ahead: Streamed replies that the peer has not told to have taken.
    """

    regions: Sequence[tuple[int, int]] = ()
    released: Sequence[int] = ()
    taken: int = 0
    told: int = 0
    ahead: int = 0


NEW = ChannelState()


class Channel:
    """Sends and receives frames. One thread receives; any may send and :meth:`shutdown`.

    Args:
        connection: Connected SEQPACKET socket.
        arena: Where this side lays out what it sends.
        peer: The memory file of the peer's arena; this object closes it.
        state: Of the channel that the connection had in another process; default: it is new.

    Attributes:
        ended_well: Whether the peer said good-bye.
    """

    def __init__(self, connection: socket.socket, arena: Arena, peer: int, state: ChannelState = NEW) -> None:
        self.ended_well = False
        self._socket = connection
        self._arena = arena
        self._peer = peer
        self._peer_memory = map_shared(peer)
        self._sending = threading.Lock()
        self._message = bytearray(MAX_MESSAGE_BYTES)
        self._leases: dict[int, weakref.ref[Any]] = {}
        self._released: deque[int] = deque(state.released)  # appended to by whichever thread drops the last array
        self._taken, self._told, self._ahead = state.taken, state.told, state.ahead
        self._is_handed_over = False
        self._has_received = False

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """Send a frame; small tensors travel inside it, larger ones through the arena.

        Raises:
            PeerGoneError: The peer is gone. Nothing of the frame was seen by it.
            ArenaFullError: The tensors do not fit; nothing was sent.
        """
        with self._sending:
            self._send(frame, tensors)

    def _send(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        size = data_bytes(tensors)
        if size > INLINE_LIMIT_BYTES:
            if self._socket.fileno() < 0:
                raise PeerGoneError("the connection was closed")
            frame.region = self._arena.allocate(size)
            self._lay_out(tensors, frame.region)
        else:
            self._arena.skip()
        frame.released = self._take_released() if self._released else ()
        message = pack(frame, tensors)
        self._ahead += frame.more
        if len(message) > MAX_MESSAGE_BYTES:
            return self._spill(frame, message)
        self._send_message(message)

    def _send_message(self, message: bytes) -> None:
        try:
            self._socket.send(message)
        except OSError as error:
            raise PeerGoneError(str(error)) from error

    def _take_released(self) -> list[int]:
        return [self._released.popleft() for _ in range(min(len(self._released), MAX_RELEASED))]

    def _spill(self, frame: Frame, message: bytes) -> None:
        """Send a frame whose description alone is too long for the socket through the arena."""
        whole = tensor(0, np.frombuffer(message, np.uint8), 0)
        try:
            self._send(Frame(SPILL, requests=1), [whole])
        except ArenaFullError:
            self._arena.free(frame.region)
            self._released.extend(frame.released)
            self._ahead -= frame.more
            raise

    def _lay_out(self, tensors: Sequence[Tensor], at: int) -> None:
        memory = self._arena.memory
        for item in tensors:
            end = at
            for part in item.parts:
                size = len(part) if isinstance(part, bytes) else part.nbytes
                if size:  # as bytes, because the server's memory is not aligned
                    np.ndarray((size,), np.uint8, memory, end)[:] = np.frombuffer(part, np.uint8)
                    end += size
            at += item.size + (-item.size % ALIGN)

    def fileno(self) -> int:
        """The socket's descriptor, readable when a frame is there."""
        return self._socket.fileno()

    def is_congested(self) -> bool:
        """Whether streams should wait for the peer to take some replies, or to release memory of this side."""
        return self._ahead >= MAX_AHEAD or self._arena.used_bytes() > MAX_UNRELEASED_BYTES

    def release(self, *, taken: bool = False, at_once: bool = False) -> None:
        """Tell the peer of memory that was released and of replies that were taken, if it can be told without waiting.

        Else some later call does: whoever receives must not wait for a peer that waits for being received. A peer that
        is about to end listens no more, and may still answer what it has.

        Args:
            taken: Whether one more streamed reply was taken.
            at_once: Tell of any number of replies, not only when there are some to tell of.
        """
        if taken:  # by the one thread that receives; any may look
            self._taken += 1
        worth_it = self._released or self._taken - self._told >= (1 if at_once else TELL_TAKEN)
        if worth_it and self._sending.acquire(blocking=False):
            try:
                released, known = self._take_released(), self._taken
                message = pack(Frame(RELEASE, known - self._told, released=released))
                try:
                    self._socket.send(message, socket.MSG_DONTWAIT)
                    self._told = known
                except BlockingIOError:
                    self._released.extend(released)
            except OSError:  # whoever receives notices
                pass
            finally:
                self._sending.release()

    def look_every(self, seconds: float) -> None:
        """Have :meth:`receive` look so often whether the connection is handed over."""
        whole, part = divmod(seconds, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIME.pack(int(whole), int(1e6 * part)))

    def hand_over(self) -> None:
        """End a :meth:`receive` between two batches, if :meth:`look_every` was called before it. Thread-safe.

        Of a channel that has received nothing, the first batch is received if it is there: it is what the process was
        started for.
        """
        self._is_handed_over = True

    def is_handed_over(self) -> bool:
        """Whether :meth:`hand_over` was called."""
        return self._is_handed_over

    def handed_over(self) -> tuple[tuple[int, int, int], ChannelState]:
        """What another process needs, once nothing is sent or received here any more: descriptors, and the rest.

        Returns:
            The descriptors of the socket, of this side's arena and of the peer's, which :meth:`close` closes. Arrays
            that are still referenced count as released: their process is about to end.
        """
        released = [*{*self._leases, *self._released}]
        state = ChannelState(self._arena.give_back(), released, self._taken, self._told, self._ahead)
        return (self._socket.fileno(), self._arena.fd, self._peer), state

    def receive(self, between_batches: bool = False) -> Frame:
        """Wait for the next frame. The memory of its arrays is given back when the last of them dies.

        Args:
            between_batches: Whether all batches are answered, so that another process may go on.

        Raises:
            PeerGoneError: The peer is gone; UnreadError if it has not read what was sent last; HandOverError if another
                process goes on.
            FrameError: What arrived is not a frame.
        """
        while True:
            if between_batches and self._is_handed_over:
                first = None if self._has_received else self.receive_ready()
                if first is None:
                    raise HandOverError("another process goes on with the connection")
                return first
            try:
                length = self._socket.recv_into(self._message)
            except BlockingIOError:  # see look_every()
                continue
            except ConnectionResetError as error:
                raise UnreadError(str(error)) from error
            except OSError as error:
                raise PeerGoneError(str(error)) from error
            return self._accept(memoryview(self._message[:length]))

    def receive_ready(self) -> Frame | None:
        """The next frame if it is there, else None; as :meth:`receive` otherwise."""
        try:
            length = self._socket.recv_into(self._message, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise UnreadError(str(error)) from error
        except OSError as error:
            raise PeerGoneError(str(error)) from error
        return self._accept(memoryview(self._message[:length]))

    def _accept(self, message: memoryview, spilled: bool = False) -> Frame:
        if not message:
            raise PeerGoneError("the connection was closed")
        self._has_received = True
        frame = unpack(message)
        for offset in frame.released:
            self._arena.free(offset)
        if frame.region != NO_REGION:
            frame.data = self._lease(frame.region, frame.data_bytes)
        if frame.kind == RELEASE:
            self._ahead -= frame.number
        elif frame.kind == BYE:
            self.ended_well = True
            raise PeerGoneError("the server lets the model go")
        elif frame.kind == SPILL:
            if spilled or len(frame.tensors) != 1:
                raise FrameError("a spilled frame holds one tensor, and no other spilled frame")
            return self._accept(memoryview(bytearray(frame.array(frame.tensors[0]))), spilled=True)
        return frame

    def _lease(self, offset: int, size: int) -> np.ndarray[Any, Any]:
        """The region as one array: the base of every array in it, so that it dies with the last of them."""
        if offset + size > len(self._peer_memory):
            raise FrameError(f"a region ends at byte {offset + size} of {len(self._peer_memory)}")
        region: np.ndarray[Any, Any] = np.ndarray((size,), np.uint8, self._peer_memory, offset)

        def release(_: object) -> None:
            del self._leases[offset]
            self._released.append(offset)

        self._leases[offset] = weakref.ref(region, release)
        return region

    def say_goodbye(self) -> None:
        """Tell the peer that the end of the connection is nobody's death."""
        with suppress(OSError):
            self._socket.send(pack(Frame(BYE)), socket.MSG_DONTWAIT)

    def shutdown(self) -> None:
        """Make both sides' :meth:`receive` raise PeerGoneError."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and forget the arena; arrays that are still referenced stay valid."""
        self._socket.close()
        self._arena.close()
        if self._peer >= 0:
            os.close(self._peer)
            self._peer = -1
