"""The C++ library that sends requests and takes their responses, ``native/inprocess/requests_api.cpp``.

A callback in Python would make a thread of the server wait for the interpreter lock, which a busy program holds for
milliseconds. So C++ takes the responses and allocates their outputs, and Python fetches them. Only allocators of the
user are called back.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
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
from itertools import count
from pathlib import Path
from typing import Any

from pytriton.inprocess.capi import REQUESTS_LIBRARY, Api, MemoryType
from pytriton.inprocess.exceptions import InternalError, UnavailableError
from pytriton.inprocess.memory import MemoryAllocator, MemoryBuffer
from pytriton.logs import get_logger
from pytriton.threads import keep_running

__all__ = ["Buffers", "NotificationQueue", "RequestsLibrary", "in_flight", "requests_library"]

LOGGER = get_logger("pytriton.inprocess")
INTERNAL = 1  # the code of an error
COUNT_BYTES = 8  # of an eventfd
MAX_NUMBERS = 64  # taken from a queue at once

in_flight: dict[int, Buffers] = {}  # by number, until the server has released the request
_tokens = count(1)
_lock = threading.Lock()
_library: RequestsLibrary | None = None


class Buffers:
    """Memory that must stay while the server has a request.

    Args:
        inputs: Owners of the inputs' memory.
        allocator: Allocates outputs; None: C++ does.

    Attributes:
        allocated: Buffers by token, from the allocator, for responses that are not decoded yet.
    """

    __slots__ = ("allocated", "allocator", "inputs")

    def __init__(self, inputs: Sequence[object], allocator: MemoryAllocator | None) -> None:
        self.inputs, self.allocator = inputs, allocator
        self.allocated: dict[int, MemoryBuffer] = {}

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> tuple[int, MemoryBuffer]:
        """A new buffer from the allocator, and its token.

        Raises:
            Exception: That of the allocator.
            InternalError: The allocator returned a buffer that is too small, or none.
        """
        assert self.allocator is not None
        made = self.allocator.allocate(size, memory_type, memory_type_id)
        if not isinstance(made, MemoryBuffer):
            raise InternalError(f"the allocator made {made!r}; a MemoryBuffer is needed")
        if made.size < size:
            raise InternalError(f"the allocator made a buffer of {made.size} bytes; {size} are needed")
        token = next(_tokens)
        self.allocated[token] = made
        return token, made


class NotificationQueue:
    """Numbers of requests that something happened to. Threads of the server put them; they do not wait for Python.

    Attributes:
        pointer: The C++ object.
    """

    def __init__(self, library: RequestsLibrary, handle: Callable[[int], object]) -> None:
        self._library, self._handle = library, handle
        self.pointer: int = library.queue_new()
        self._descriptor: int = library.queue_descriptor(self.pointer)
        self._numbers = (c_uint64 * MAX_NUMBERS)()
        weakref.finalize(self, library.queue_delete, self.pointer).atexit = False

    def read_on_thread(self, name: str) -> None:
        """Handle numbers from now on, on a thread that ends with the process."""
        keep_running(self._read_forever, name)

    def read_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle numbers from now on, on an event loop. To be called on that loop."""
        loop.add_reader(self._descriptor, self._read)

    def _read_forever(self) -> None:
        while True:
            self._read()

    def _read(self) -> None:
        os.read(self._descriptor, COUNT_BYTES)  # first: a number that is put into the empty queue later wakes us again
        while count := self._library.queue_take(self.pointer, self._numbers, MAX_NUMBERS):
            for number in self._numbers[:count]:
                try:
                    self._handle(number)
                except BaseException:  # other requests must get their responses
                    LOGGER.exception("a response could not be delivered")


class AllocatedBuffer(Structure):
    """``AllocatedBuffer`` of ``native/inprocess/pending_request.h``."""

    _fields_ = (("base", c_void_p), ("token", c_uint64), ("memory", c_int32), ("_", c_int32), ("device", c_int64))


AllocateCallback = CFUNCTYPE(c_void_p, c_uint64, c_size_t, c_int32, c_int64, POINTER(AllocatedBuffer))


class RequestsLibrary:
    """The library's functions. Those of ``PyDLL`` keep the interpreter lock: they do not wait.

    ``new`` and ``send`` return an error of the C API, or None.

    Raises:
        UnavailableError: There is no library, or the server lacks a function.
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
        self.queue_new = _function(quick.pytriton_notification_queue_new, c_void_p)
        self.queue_delete = _function(quick.pytriton_notification_queue_delete, None, c_void_p)
        self.queue_descriptor = _function(quick.pytriton_notification_queue_descriptor, c_int, c_void_p)
        self.queue_take = _function(quick.pytriton_notification_queue_take, c_size_t, c_void_p, c_void_p, c_size_t)
        self.handle_new = _function(quick.pytriton_server_handle_new, c_void_p, c_void_p)
        self.handle_enter = _function(quick.pytriton_server_handle_enter, c_bool, c_void_p)
        self.handle_leave = _function(quick.pytriton_server_handle_leave, None, c_void_p)
        self.handle_close = _function(quick.pytriton_server_handle_close, c_bool, c_void_p)
        self.handle_wait_unused = _function(waiting.pytriton_server_handle_wait_unused, None, c_void_p)
        self.handle_delete = _function(quick.pytriton_server_handle_delete, None, c_void_p)
        # With the interpreter lock: the call only queues the request, under locks that no thread of the server holds
        # while it waits for Python. Without the lock, each request would cost two switches of threads, and would be a
        # batch of its own.
        self.new = _function(quick.pytriton_request_new, c_void_p, c_void_p, c_char_p, c_char_p, c_void_p, c_void_p)
        self.send = _function(quick.pytriton_request_send, c_void_p, c_void_p)
        self.next = _function(quick.pytriton_request_next, c_void_p, c_void_p, c_int64)
        self.wait_next = _function(waiting.pytriton_request_next, c_void_p, c_void_p, c_int64)
        self.finish = _function(quick.pytriton_request_finish, c_bool, c_void_p, c_void_p)
        self.cancel = _function(waiting.pytriton_request_cancel, None, c_void_p)
        self.drop = _function(quick.pytriton_request_drop, c_bool, c_void_p)
        self.drop_unsent = _function(waiting.pytriton_request_drop, c_bool, c_void_p)  # may delete the server's request
        self.free = _function(quick.pytriton_free, None, c_void_p)
        self._allocate_callback = AllocateCallback(self._allocate)
        load = _function(waiting.pytriton_load, c_char_p, c_void_p, AllocateCallback)
        if missing := load(api.handle, self._allocate_callback):
            raise UnavailableError(f"the server's library has no function {missing.decode()}")
        # Requests that the server releases after Python has asked for the last time.
        self._released = NotificationQueue(self, lambda number: in_flight.pop(number, None))
        notify_released = _function(waiting.pytriton_notify_released, c_void_p, c_void_p)
        if refused := notify_released(self._released.pointer):
            api.raise_error(refused)
        self._released.read_on_thread("pytriton-inprocess-released")

    def _allocate(self, number: int, size: int, memory_type: int, memory_type_id: int, result: Any) -> int | None:
        """Call a request's allocator, on a thread of the server. An exception becomes the response's error."""
        try:
            token, buffer = in_flight[number].allocate(size, MemoryType(memory_type), memory_type_id)
            result[0] = AllocatedBuffer(buffer.data_ptr, token, buffer.memory_type, 0, buffer.memory_type_id)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode(errors="replace").replace(b"\0", b"")
            return int(self.api.ErrorNew(INTERNAL, text))
        return None


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


def requests_library(api: Api) -> RequestsLibrary:
    """The library, loaded at the first call; it stays loaded until the process ends.

    Raises:
        UnavailableError: As the constructor of :class:`RequestsLibrary`.
    """
    global _library
    with _lock:
        if _library is None:
            _library = RequestsLibrary(api, REQUESTS_LIBRARY)
        return _library
