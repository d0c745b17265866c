"""Connections between the native proxy and workers in one process, where frames are arguments of functions.

Threads of the server call the proxy's two callbacks, with the interpreter lock. Frames of workers are what the callback
returns, or arguments of ``pytriton_reply``.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CFUNCTYPE, POINTER, Array, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p, py_object, pythonapi
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.inprocess.handle import is_forked
from pytriton.inprocess.memory import address_of
from pytriton.logs import get_logger
from pytriton.server.backends import LIBRARY
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import BYE, INLINE_LIMIT_BYTES, KIND, NO_REGION, REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import FrameError, Tensor, data_bytes
from pytriton.worker.interfaces import Accept, Answer

__all__ = ["LocalChannel", "NativeProxy", "native_proxy"]

LOGGER = get_logger("pytriton.worker")

ELSEWHERE = 0  # the region of a frame whose tensors are anywhere in memory
REFUSED, TAKEN = 0, 1
WRITABLE = 0x200  # PyBUF_WRITE
AcceptCallback = CFUNCTYPE(c_int, c_uint64, c_uint64)
PYTHON_FUNCTIONS = (
    "PyLong_FromUnsignedLongLong",
    "PyByteArray_FromStringAndSize",
    "PyObject_CallFunctionObjArgs",
    "PyBytes_AsStringAndSize",
    "PyErr_Clear",
    "Py_DecRef",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyGILState_GetThisThreadState",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)

_lock = threading.Lock()
_proxy: NativeProxy | None = None
_memoryview = ctypes.PYFUNCTYPE(py_object, c_void_p, c_size_t, c_int)(("PyMemoryView_FromMemory", pythonapi))


class LocalChannel:
    """A :class:`pytriton.worker.interfaces.LocalChannel`. At most one thread receives; any may send.

    Inputs are copied once, into memory that the callable may keep. Outputs of more than INLINE_LIMIT_BYTES are read
    where they are.

    Attributes:
        ended_well: Whether the proxy said good-bye.
    """

    def __init__(self, proxy: NativeProxy, number: int) -> None:
        self.ended_well = False
        self._proxy: NativeProxy | _MissingProxy = proxy
        self._number = number
        self._arrived: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._signal = -1
        self._answer: Answer | None = None
        self._on_end: Callable[[], None] = lambda: None
        self._busy = self._ended = self._notified = False

    def answer_with(self, answer: Answer, ended: Callable[[], None]) -> None:
        """As the interface's."""
        self._answer, self._on_end = answer, ended

    def take(self, message: bytearray) -> bytes | None:
        """Take a message of the proxy: a frame, or nothing at the end.

        Returns:
            The answer; empty if there is none, or it is sent otherwise. None: the channel takes nothing any more.
        """
        answer = self._answer
        if answer is None or not message or message[KIND] != REQUEST:
            return self._take_other(message)
        self._busy = True  # first: shutdown() reads it after it has set _ended
        try:
            return None if self._ended else self._reply(*answer(self, self._frame_of(message)))
        except PeerGoneError:  # nobody waits for the answer
            return b""
        finally:
            self._busy = False
            if self._ended:
                self._end_once()

    def _take_other(self, message: bytearray) -> bytes | None:
        if not message:
            self.shutdown()
        elif message[KIND] == BYE:
            self.ended_well = True
            self.shutdown()
        elif self._ended:
            return None
        else:
            self._queue(self._frame_of(message))
        return b""

    def _frame_of(self, message: bytearray) -> Frame:
        """The frame of a message. The worker owns the memory of a large batch from here on."""
        frame = unpack(memoryview(message))
        if frame.region != NO_REGION:
            frame.data = self._proxy.lease(frame.region, frame.data_bytes)
        return frame

    def _queue(self, frame: Frame | None) -> None:
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
        """As the interface's. The proxy has processed the frame when this returns."""
        if data_bytes(tensors) <= INLINE_LIMIT_BYTES:
            addresses = None
        else:
            frame.region = ELSEWHERE
            addresses = (c_uint64 * len(tensors))(*map(_address, tensors))
        message = pack(frame, tensors)
        if not self._proxy.reply(self._number, message, len(message), addresses):
            raise PeerGoneError("the server let the model go")

    def is_handed_over(self) -> bool:
        """Never: there is no other process."""
        return False

    def receive(self, between_batches: bool = False) -> Frame:
        """As the interface's; batches that :meth:`answer_with` has answered do not come this way."""
        return self._checked(self._arrived.get())

    def receive_ready(self) -> Frame | None:
        """As the interface's."""
        with suppress(queue.Empty):
            return self._checked(self._arrived.get_nowait())
        if self._signal >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal)
            with suppress(queue.Empty):  # a frame that came before the signal was read
                return self._checked(self._arrived.get_nowait())
        return None

    def _checked(self, frame: Frame | None) -> Frame:
        if frame is None:
            self._arrived.put(None)  # for the next call
            raise PeerGoneError("the server let the model go")
        return frame

    def is_congested(self) -> bool:
        """Whether streams should wait: never, as the proxy takes each reply at once."""
        return False

    def fileno(self) -> int:
        """As the interface's."""
        with self._lock:
            if self._signal < 0:
                self._signal = os.eventfd(int(not self._arrived.empty()), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self._signal

    def shutdown(self) -> None:
        """Take no more batches. Batches that have come are answered, if threads of the proxy answer them."""
        if not self._ended:
            self._ended = True
            self._queue(None)
            if self._answer is not None and not self._busy:
                self._end_once()

    def _end_once(self) -> None:
        with self._lock:
            first, self._notified = not self._notified, True
        if first:
            self._on_end()

    def abandon(self) -> None:
        """As the interface's."""
        self._proxy, self._lock, self._ended = _MissingProxy(), threading.Lock(), True

    def close(self) -> None:
        """End the connection; arrays that are still referenced stay valid."""
        self._ended = True
        self._proxy.disconnect(self._number)
        with self._lock:
            signal, self._signal = self._signal, -1
        if signal >= 0:
            os.close(signal)


class _MissingProxy:
    """Takes the place of the proxy in a forked child, as the C++ side is the parent's."""

    def reply(self, connection: int, message: bytes, size: int, addresses: Array[c_uint64] | None) -> int:
        return REFUSED

    def lease(self, address: int, size: int) -> NDArray[np.uint8]:
        raise PeerGoneError("this process was forked from the server's")

    def disconnect(self, connection: int) -> None:
        pass


def _address(tensor: Tensor) -> int:
    if len(tensor.parts) != 1:
        raise FrameError("a tensor in several parts has no address")
    (part,) = tensor.parts
    return address_of(np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part)


class Interpreter(ctypes.Structure):
    """``PytritonInterpreter`` of ``native/proxy/interpreter.h``."""

    _fields_ = [("accept", AcceptCallback), ("deliver", py_object), *((name, c_void_p) for name in PYTHON_FUNCTIONS)]


class NativeProxy:
    """The native proxy's side of all connections, through ctypes. The callbacks stay until the process ends.

    Args:
        library: The backend. The server has loaded it.

    Attributes:
        reply: Sends a frame of a connection: its message, size, and the addresses of its tensors or None. Returns 0 if
            the connection has ended. Other threads of the interpreter run meanwhile.
    """

    def __init__(self, library: Path) -> None:
        self._functions = ctypes.CDLL(str(library))
        self.reply = _function(self._functions, "reply", c_uint64, c_char_p, c_uint64, POINTER(c_uint64))
        self.reply.restype = c_int
        self._disconnect = _function(self._functions, "disconnect", c_uint64)
        self._free = _function(self._functions, "free", c_void_p)
        self._numbers = count(1)
        self._workers: dict[int, Accept] = {}
        self._channels: dict[int, LocalChannel] = {}
        self._leases: dict[int, weakref.ref[Any]] = {}
        functions = {name: ctypes.cast(getattr(pythonapi, name), c_void_p) for name in PYTHON_FUNCTIONS}
        self._interpreter = Interpreter(AcceptCallback(self._accept), self._deliver, **functions)
        self._functions.pytriton_set_interpreter(byref(self._interpreter))

    def listen(self, path: str, accept: Accept) -> Callable[[], None]:
        """Have proxies in this process connect to a worker, as :data:`~pytriton.worker.interfaces.ListenLocally`.

        Args:
            path: The path of the worker's socket, which these proxies do not use.
            accept: Called with each new channel.

        Returns:
            Ends that.
        """
        number = next(self._numbers)
        self._workers[number] = accept
        _function(self._functions, "listen", c_char_p, c_uint64)(path.encode(), number)

        def close() -> None:
            _function(self._functions, "stop_listening", c_char_p)(path.encode())
            self._workers.pop(number, None)

        return close

    def lease(self, address: int, size: int) -> NDArray[np.uint8]:
        """The memory of a large batch; it is freed with the last array that refers to it."""
        region = np.frombuffer(_memoryview(address, size, WRITABLE), np.uint8)

        def free(_: object) -> None:
            del self._leases[address]
            self._free(address)

        self._leases[address] = weakref.ref(region, free)
        return region

    def disconnect(self, connection: int) -> None:
        """End a connection."""
        if self._channels.pop(connection, None) is not None:
            self._disconnect(connection)

    def close(self) -> None:
        """Remove the callbacks, because the interpreter ends."""
        self._functions.pytriton_set_interpreter(None)

    def _accept(self, worker: int, connection: int) -> int:
        accept = self._workers.get(worker)
        if accept is None:
            return REFUSED
        channel = self._channels[connection] = LocalChannel(self, connection)
        if accept(channel):
            return TAKEN
        del self._channels[connection]
        return REFUSED

    def _deliver(self, connection: int, message: bytearray) -> bytes | None:
        channel = self._channels.get(connection)
        if channel is None:
            return None
        try:
            return channel.take(message)
        except BaseException:
            LOGGER.exception("a batch of the server in this process was lost")
            return b""


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = library[f"pytriton_{name}"]  # each look-up makes another object
    function.argtypes, function.restype = arguments, None
    return function


def native_proxy() -> NativeProxy:
    """The native proxy of this process, after the server's library is loaded. The first call makes it."""
    global _proxy
    with _lock:
        if _proxy is None:
            _proxy = NativeProxy(LIBRARY)
        return _proxy


@atexit.register
def _close() -> None:
    if _proxy is not None and not is_forked():
        _proxy.close()
