"""What the server calls: for buffers, with responses, and when it has let go of a request.

One set of C functions serves all requests of the process; each request is known to them by a number. No exception
leaves them for C: one while a buffer is made becomes the response's error.
"""

from __future__ import annotations

import threading
from ctypes import byref, c_int, c_int64, c_void_p
from itertools import count
from typing import TYPE_CHECKING, Protocol

from pytriton.inprocess.capi import Allocate, Api, Complete, Query, Release, ReleaseBuffer
from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import InternalError
from pytriton.inprocess.memory import MemoryBuffer, Place

if TYPE_CHECKING:
    from ctypes import _Pointer

    IntPointer = _Pointer[c_int]
    LongPointer = _Pointer[c_int64]
    AnyPointer = _Pointer[c_void_p]

__all__ = ["Callbacks", "Passenger", "callbacks"]

RELEASE_ALL = FINAL = 1
INTERNAL = 1
_lock = threading.Lock()
_callbacks: Callbacks | None = None


class Passenger(Protocol):
    """A request that the server has."""

    def preferred(self, place: Place) -> Place:
        """Where an output is to lie, if the model would have it at ``place``."""

    def allocate(self, size: int, place: Place) -> MemoryBuffer:
        """A buffer for an output, of at least ``size`` bytes."""

    def complete(self, response: int | None, final: bool) -> None:
        """Take a response of the C API, or word that none follows."""

    def release(self) -> None:
        """The server reads the request and its inputs no more."""


class Callbacks:
    """The C functions, and the requests that they are called for.

    Args:
        api: The server's functions.

    Attributes:
        buffers: Those in which the outputs of responses lie that the server still has, by number.
        allocator: The C API's object for those functions that make buffers.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._numbers = count(1)
        self._passengers: dict[int, Passenger] = {}
        self.buffers: dict[int, MemoryBuffer] = {}
        self.allocator = c_void_p()
        self._kept = Allocate(self._allocate), ReleaseBuffer(self._release_buffer), Query(self._query)
        self.complete, self.release = Complete(self._complete), Release(self._release)
        allocate, release, query = self._kept
        api.ResponseAllocatorNew(byref(self.allocator), allocate, release, None)
        api.ResponseAllocatorSetQueryFunction(self.allocator, query)

    def board(self, passenger: Passenger) -> int:
        """Give a request a number, by which the server is to name it."""
        number = next(self._numbers)
        self._passengers[number] = passenger
        return number

    def leave(self, number: int) -> None:
        """Forget a request, which the server names no more."""
        del self._passengers[number]

    def _allocate(
        self,
        allocator: int,
        tensor: int,
        size: int,
        memory_type: int,
        memory_type_id: int,
        number: int,
        buffer: AnyPointer,
        buffer_number: AnyPointer,
        actual_type: IntPointer,
        actual_type_id: LongPointer,
    ) -> int | None:
        try:
            place = MemoryType(memory_type), memory_type_id
            made = self._passengers[number].allocate(size, place)
            if made.size < size:
                raise InternalError(f"the allocator made a buffer of {made.size} bytes; {size} are needed")
            token = next(self._numbers)
            buffer[0], buffer_number[0] = c_void_p(made.data_ptr), c_void_p(token)
            actual_type[0], actual_type_id[0] = c_int(made.memory_type), c_int64(made.memory_type_id)
            self.buffers[token] = made
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode(errors="replace").replace(b"\0", b"")
            return int(self._api.ErrorNew(INTERNAL, text))
        return None

    def _release_buffer(
        self, allocator: int, buffer: int, number: int, size: int, memory_type: int, memory_type_id: int
    ) -> None:
        self.buffers.pop(number, None)

    def _query(
        self, allocator: int, number: int, tensor: int, size: int, memory_type: IntPointer, memory_type_id: LongPointer
    ) -> None:
        passenger = self._passengers.get(number)
        if passenger is not None:
            place = passenger.preferred((MemoryType(memory_type[0]), memory_type_id[0]))
            memory_type[0], memory_type_id[0] = c_int(place[0]), c_int64(place[1])

    def _complete(self, response: int | None, flags: int, number: int) -> None:
        self._passengers[number].complete(response, bool(flags & FINAL))

    def _release(self, request: int, flags: int, number: int) -> None:
        if flags & RELEASE_ALL:
            self._passengers[number].release()


def callbacks(api: Api) -> Callbacks:
    """Those of this process, which stay."""
    global _callbacks
    with _lock:
        if _callbacks is None:
            _callbacks = Callbacks(api)
        return _callbacks
