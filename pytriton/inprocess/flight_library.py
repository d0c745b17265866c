"""The native part of calling models, ``native/flights.cpp``: requests on their way, without Python on server threads.

A callback in Python would make a thread of the server's wait for the interpreter lock, for milliseconds while others
compute. So C++ takes the responses, with memory for their outputs, and Python fetches them. Only allocators of the
user's are called back.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.capi import Api
from pytriton.inprocess.cargo import aloft
from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import UnavailableError
from pytriton.inprocess.mailbox import Mailbox
from pytriton.server.native_backend import LIBRARY

if TYPE_CHECKING:
    from ctypes import _Pointer

    MadePointer = _Pointer["Made"]

__all__ = ["FlightLibrary", "flight_library"]

CALLS = LIBRARY.with_name("libpytriton_calls.so")
INTERNAL = 1
_lock = threading.Lock()
_library: FlightLibrary | None = None


class Made(Structure):
    """A buffer, as C++ is told of it."""

    _fields_ = (
        ("base", c_void_p),
        ("token", c_uint64),
        ("memory", c_int32),
        ("unused", c_int32),
        ("device", c_int64),
    )


Allocate = CFUNCTYPE(c_void_p, c_uint64, c_size_t, c_int32, c_int64, POINTER(Made))


class FlightLibrary:
    """Its functions. Those that are ``PyDLL``'s keep the interpreter lock: they wait for nobody. ``new`` and ``send``
    return an error of the C API, or None.

    Args:
        api: The server's functions.
        path: The library.

    Raises:
        UnavailableError: There is none, or the server lacks a function.
    """

    def __init__(self, api: Api, path: Path) -> None:
        try:
            waiting, quick = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        except OSError as error:
            raise UnavailableError(
                f"the native part of pytriton.inprocess cannot be loaded: {error}. Wheels of pytriton have it; when it "
                "is built from source, a C++ compiler must be there (g++ or clang++)"
            ) from error
        self.api = api
        self.mailbox_new = _function(quick.pytriton_mailbox_new, c_void_p)
        self.mailbox_delete = _function(quick.pytriton_mailbox_delete, None, c_void_p)
        self.mailbox_descriptor = _function(quick.pytriton_mailbox_descriptor, c_int, c_void_p)
        self.mailbox_take = _function(quick.pytriton_mailbox_take, c_size_t, c_void_p, c_void_p, c_size_t)
        self.airspace_new = _function(quick.pytriton_airspace_new, c_void_p, c_void_p)
        self.airspace_close = _function(waiting.pytriton_airspace_close, None, c_void_p)
        self.airspace_delete = _function(quick.pytriton_airspace_delete, None, c_void_p)
        # With the interpreter lock: it only queues the request, under locks that no thread of the server's holds while
        # it waits for Python. If others ran in between, each request would cost two switches, and make its own batch.
        self.new = _function(quick.pytriton_flight_new, c_void_p, c_void_p, c_char_p, c_char_p, c_void_p, c_void_p)
        self.send = _function(quick.pytriton_flight_send, c_void_p, c_void_p)
        self.next = _function(quick.pytriton_flight_next, c_void_p, c_void_p, c_int64)
        self.wait_next = _function(waiting.pytriton_flight_next, c_void_p, c_void_p, c_int64)
        self.finish = _function(quick.pytriton_flight_finish, c_bool, c_void_p, c_void_p)
        self.cancel = _function(waiting.pytriton_flight_cancel, None, c_void_p)
        self.drop = _function(quick.pytriton_flight_drop, c_bool, c_void_p)
        self.drop_waiting = _function(waiting.pytriton_flight_drop, c_bool, c_void_p)  # the request, if it was not sent
        self.free = _function(quick.pytriton_free, None, c_void_p)
        self._allocate = Allocate(self._made)
        load = _function(waiting.pytriton_load, c_char_p, c_void_p, Allocate)
        if missing := load(api.handle, self._allocate):
            raise UnavailableError(f"the server's library has no function {missing.decode()}")
        # Cargo of flights that end after Python has turned away from them.
        self._over = Mailbox(self, lambda number: aloft.pop(number, None))
        report = _function(waiting.pytriton_report, c_void_p, c_void_p)
        if refused := report(self._over.pointer):
            api.raise_error(refused)
        self._over.read_on_a_thread("pytriton-inprocess-cargo")

    def _made(self, number: int, size: int, memory_type: int, memory_type_id: int, made: MadePointer) -> int | None:
        """Call a request's allocator, on a thread of the server's. An exception becomes the response's error."""
        try:
            token, buffer = aloft[number].make(size, MemoryType(memory_type), memory_type_id)
            made[0] = Made(buffer.data_ptr, token, buffer.memory_type, 0, buffer.memory_type_id)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode(errors="replace").replace(b"\0", b"")
            return int(self.api.ErrorNew(INTERNAL, text))
        return None


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


def flight_library(api: Api) -> FlightLibrary:
    """That of this process, which stays loaded.

    Raises:
        UnavailableError: There is none.
    """
    global _library
    with _lock:
        if _library is None:
            _library = FlightLibrary(api, CALLS)
        return _library
