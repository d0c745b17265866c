"""One connection between the native proxy and a worker, both in this process: frames are arguments of functions."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import Array, c_uint64
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import BYE, INLINE_LIMIT_BYTES, KIND, NO_REGION, REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import FrameError, Tensor, data_bytes
from pytriton.worker.interfaces import Answer

__all__ = ["LocalChannel", "Proxy"]

ELSEWHERE = 0  # where a frame's region would begin: its tensors lie wherever they are


class Proxy(Protocol):
    """The proxy's side of all connections."""

    def reply(self, connection: int, message: bytes, size: int, addresses: Array[c_uint64] | None) -> int:
        """Take a frame; 0 if it cannot. Other threads of the interpreter run meanwhile."""

    def lease(self, address: int, size: int) -> NDArray[np.uint8]:
        """The memory of a large batch, given back with the last array in it."""

    def leave(self, connection: int) -> None:
        """End a connection."""


class LocalChannel:
    """Sends and receives frames. One thread receives, or none; any may send.

    Inputs are copied once, into memory that is the callable's. Outputs of more than INLINE_LIMIT_BYTES are read where
    they are.

    Args:
        proxy: The other side.
        number: Of the connection.

    Attributes:
        ended_well: Whether the proxy said good-bye.
    """

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.ended_well = False
        self._proxy: Proxy = proxy
        self._number = number
        self._arrived: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._signal = -1
        self._answer: Answer | None = None
        self._part: Callable[[], None] = lambda: None
        self._busy = self._ended = self._parted = False

    def answer_with(self, answer: Answer, ended: Callable[[], None]) -> None:
        """As :meth:`pytriton.worker.interfaces.LocalChannel.answer_with`."""
        self._answer, self._part = answer, ended

    def take(self, message: bytearray) -> bytes | None:
        """Take what the proxy sends: a frame, or nothing at the end.

        Returns:
            The answer; empty if it was sent already, or comes later, or never. None: it is too late to take anything.
        """
        answer = self._answer
        if answer is None or not message or message[KIND] != REQUEST:
            return self._take_aside(message)
        self._busy = True  # first: who shuts down looks at it afterwards
        try:
            return None if self._ended else self._reply(*answer(self, self._frame_of(message)))
        except PeerGoneError:  # nobody waits for the answer
            return b""
        finally:
            self._busy = False
            if self._ended:
                self._part_once()

    def _take_aside(self, message: bytearray) -> bytes | None:
        if not message:
            self.shutdown()
        elif message[KIND] == BYE:
            self.ended_well = True
            self.shutdown()
        elif self._ended:
            return None
        else:
            self._hand_in(self._frame_of(message))
        return b""

    def _frame_of(self, message: bytearray) -> Frame:
        """The frame of a message; from here on, the memory of a large batch is ours."""
        frame = unpack(memoryview(message))
        if frame.region != NO_REGION:
            frame.data = self._proxy.lease(frame.region, frame.data_bytes)
        return frame

    def _hand_in(self, frame: Frame | None) -> None:
        self._arrived.put(frame)
        with self._lock:
            if self._signal >= 0:
                os.eventfd_write(self._signal, 1)

    def _reply(self, frame: Frame, tensors: Sequence[Tensor]) -> bytes:
        """The message of a reply; empty if the reply was sent, as large outputs are read where they lie."""
        if data_bytes(tensors) <= INLINE_LIMIT_BYTES:
            return pack(frame, tensors)
        self.send(frame, tensors)
        return b""

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """Send a frame, which the proxy has dealt with when this returns.

        Raises:
            PeerGoneError: The proxy is gone.
        """
        if data_bytes(tensors) <= INLINE_LIMIT_BYTES:
            addresses = None
        else:
            frame.region = ELSEWHERE
            addresses = (c_uint64 * len(tensors))(*map(_address, tensors))
        message = pack(frame, tensors)
        if not self._proxy.reply(self._number, message, len(message), addresses):
            raise PeerGoneError("the server let the model go")

    def receive(self) -> Frame:
        """Wait for the next frame; batches that :meth:`answer_with` has answered do not come this way.

        Raises:
            PeerGoneError: The proxy is gone.
        """
        return self._checked(self._arrived.get())

    def receive_ready(self) -> Frame | None:
        """The next frame if it is there, else None; raises as :meth:`receive`."""
        with suppress(queue.Empty):
            return self._checked(self._arrived.get_nowait())
        if self._signal < 0:
            return None
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal)
        with suppress(queue.Empty):  # what came before the signal was taken back
            return self._checked(self._arrived.get_nowait())
        return None

    def _checked(self, frame: Frame | None) -> Frame:
        if frame is None:
            self._arrived.put(None)  # for the next one who asks
            raise PeerGoneError("the server let the model go")
        return frame

    def is_congested(self) -> bool:
        """Whether streams should wait: never, as the proxy takes each reply at once."""
        return False

    def fileno(self) -> int:
        """A descriptor, readable when a frame is there."""
        with self._lock:
            if self._signal < 0:
                self._signal = os.eventfd(int(not self._arrived.empty()), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self._signal

    def shutdown(self) -> None:
        """Take no batch any more; those that came are answered, if threads of the proxy's do that."""
        if not self._ended:
            self._ended = True
            self._hand_in(None)
            if self._answer is not None and not self._busy:
                self._part_once()

    def _part_once(self) -> None:
        with self._lock:
            first, self._parted = not self._parted, True
        if first:
            self._part()

    def abandon(self) -> None:
        """As :meth:`pytriton.worker.interfaces.LocalChannel.abandon`."""
        self._proxy, self._lock, self._ended = _Gone(), threading.Lock(), True

    def close(self) -> None:
        """End the connection; arrays that are still referenced stay valid."""
        self._ended = True
        self._proxy.leave(self._number)
        with self._lock:
            signal, self._signal = self._signal, -1
        if signal >= 0:
            os.close(signal)


class _Gone:
    """The proxy's side in a forked child, whose C++ half is the parent's."""

    def reply(self, connection: int, message: bytes, size: int, addresses: Array[c_uint64] | None) -> int:
        return 0

    def lease(self, address: int, size: int) -> NDArray[np.uint8]:
        raise PeerGoneError("this process was forked from the server's")

    def leave(self, connection: int) -> None:
        pass


def _address(tensor: Tensor) -> int:
    if len(tensor.parts) != 1:
        raise FrameError("a tensor in several parts has no address")
    (part,) = tensor.parts
    array: NDArray[Any] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
    return int(array.__array_interface__["data"][0])
