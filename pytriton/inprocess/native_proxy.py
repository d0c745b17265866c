"""The native proxy of a server in this process, as far as workers meet it here, through ctypes.

Threads of the server call the two callbacks, with the interpreter's lock; they stay as long as the process. Frames from
workers go the other way as what is returned, or in calls of ``pytriton_reply``.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
import weakref
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p, py_object, pythonapi
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.inprocess.local_channel import LocalChannel
from pytriton.inprocess.running import is_forked
from pytriton.server.native_backend import LIBRARY
from pytriton.worker.interfaces import Accept

__all__ = ["NativeProxy", "native_proxy"]

LOGGER = logging.getLogger("pytriton.worker")

MeetCallback = CFUNCTYPE(c_int, c_uint64, c_uint64)
PYTHONS = (
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
REFUSED, TAKEN = 0, 1
WRITABLE = 0x200  # PyBUF_WRITE

_lock = threading.Lock()
_proxy: NativeProxy | None = None

# A function of the interpreter that keeps its lock.
_memoryview = ctypes.PYFUNCTYPE(py_object, c_void_p, c_size_t, c_int)(("PyMemoryView_FromMemory", pythonapi))


class Interpreter(ctypes.Structure):
    """``PytritonInterpreter`` of ``native/interpreter.h``."""

    _fields_ = [("meet", MeetCallback), ("deliver", py_object), *((name, c_void_p) for name in PYTHONS)]


class NativeProxy:
    """Brings proxies and workers together.

    Args:
        library: The backend, which the server has loaded.
    """

    def __init__(self, library: Path) -> None:
        self._functions = ctypes.CDLL(str(library))  # which lets other threads of the interpreter run meanwhile
        self.reply = _function(self._functions, "reply", c_uint64, c_char_p, c_uint64, POINTER(c_uint64))
        self.reply.restype = c_int
        self._leave = _function(self._functions, "leave", c_uint64)
        self._free = _function(self._functions, "free", c_void_p)
        self._numbers = count(1)
        self._workers: dict[int, Accept] = {}
        self._channels: dict[int, LocalChannel] = {}
        self._leases: dict[int, weakref.ref[Any]] = {}
        pythons = {name: ctypes.cast(getattr(pythonapi, name), c_void_p) for name in PYTHONS}
        self._interpreter = Interpreter(MeetCallback(self._meet), self._deliver, **pythons)
        self._functions.pytriton_introduce(byref(self._interpreter))

    def offer(self, path: str, meet: Accept) -> Callable[[], None]:
        """As :data:`pytriton.worker.interfaces.ListenLocally`."""
        number = next(self._numbers)
        self._workers[number] = meet
        _function(self._functions, "offer", c_char_p, c_uint64)(path.encode(), number)

        def withdraw() -> None:
            _function(self._functions, "withdraw", c_char_p)(path.encode())
            self._workers.pop(number, None)

        return withdraw

    def lease(self, address: int, size: int) -> NDArray[np.uint8]:
        """The memory of a large batch, given back with the last array in it."""
        region = np.frombuffer(_memoryview(address, size, WRITABLE), np.uint8)

        def release(_: object) -> None:
            del self._leases[address]
            self._free(address)

        self._leases[address] = weakref.ref(region, release)
        return region

    def leave(self, connection: int) -> None:
        """End a connection."""
        if self._channels.pop(connection, None) is not None:
            self._leave(connection)

    def part(self) -> None:
        """Be called no more: the interpreter ends."""
        self._functions.pytriton_introduce(None)

    def _meet(self, worker: int, connection: int) -> int:
        meet = self._workers.get(worker)
        if meet is None:
            return REFUSED
        channel = self._channels[connection] = LocalChannel(self, connection)
        if meet(channel):
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
    function = library[f"pytriton_{name}"]  # each look-up gives another object
    function.argtypes, function.restype = arguments, None
    return function


def native_proxy() -> NativeProxy:
    """That of this process, once the server's library is loaded; it stays."""
    global _proxy
    with _lock:
        if _proxy is None:
            _proxy = NativeProxy(LIBRARY)
        return _proxy


@atexit.register
def _part() -> None:
    if _proxy is not None and not is_forked():
        _proxy.part()
