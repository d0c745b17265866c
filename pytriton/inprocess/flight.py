"""A request on its way through the server.

A flight ends when the server has both let go of the request and sent the last response. Until then it can be cancelled,
and keeps the server from being deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from pytriton.inprocess.callbacks import callbacks
from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import InternalError
from pytriton.inprocess.memory import HostAllocator, MemoryBuffer, Place, place_of
from pytriton.inprocess.parameters import encoded
from pytriton.inprocess.request_writer import write
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.response_reader import read
from pytriton.inprocess.tensor import tensor_of

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["Flight"]

DEFAULT_ALLOCATOR = HostAllocator()


class Flight:
    """A request that was sent, as it was then.

    Args:
        request: It.
        deliver: Gets each response, on a thread of the server's; must not raise.

    Raises:
        TritonError: The server did not accept it, or something in it is wrong.
    """

    def __init__(self, request: InferenceRequest, deliver: Callable[[InferenceResponse], object]) -> None:
        self._model, self._deliver = request.model, deliver
        wish = request.output_memory_type
        self._wish = None if wish is None else place_of(wish)
        self._allocator = request.output_memory_allocator or DEFAULT_ALLOCATOR
        self._inputs = {encoded(name): tensor_of(value) for name, value in request.inputs.items()}
        self._lock = threading.RLock()
        self._ends = 2  # of the request, and of the responses
        self._running = request.model.server.running
        self._api, server = self._running.__enter__()
        try:
            self._callbacks = callbacks(self._api)
            self._handle = c_void_p()
            model = request.model
            self._api.InferenceRequestNew(byref(self._handle), server, encoded(model.name), model.version)
            try:
                write(self._api, self._handle, request, self._inputs)
                self._send(server)
            except BaseException:
                self._api.InferenceRequestDelete(self._handle)
                raise
        except BaseException:
            self._running.__exit__(None, None, None)
            raise

    def cancel(self) -> None:
        """Tell the server that nobody waits any more; nothing, if the flight has ended."""
        with self._lock:
            if self._ends:
                self._api.InferenceRequestCancel(self._handle)

    def preferred(self, place: Place) -> Place:
        """Where an output is to lie: as the request says, else as the model does, as far as the allocator goes."""
        if self._wish is not None:
            return self._wish
        return (MemoryType.CPU, 0) if self._allocator is DEFAULT_ALLOCATOR else place

    def allocate(self, size: int, place: Place) -> MemoryBuffer:
        """The request's allocator's buffer."""
        return self._allocator.allocate(size, *(self._wish or place))

    def complete(self, handle: int | None, final: bool) -> None:
        """Read and deliver a response."""
        try:
            response = InferenceResponse(self._asked(), "") if handle is None else self._read(handle)
            response.final = final
            self._deliver(response)
        finally:
            if final:
                self._end()

    def release(self) -> None:
        """Let go of the inputs."""
        self._inputs = {}
        self._end()

    def _send(self, server: c_void_p) -> None:
        api, handle = self._api, self._handle
        self._number = number = self._callbacks.board(self)
        try:
            api.InferenceRequestSetReleaseCallback(handle, self._callbacks.release, number)
            allocator, complete = self._callbacks.allocator, self._callbacks.complete
            api.InferenceRequestSetResponseCallback(handle, allocator, number, complete, number)
            api.ServerInferAsync(server, handle, None)
        except BaseException:
            self._callbacks.leave(number)
            raise

    def _read(self, handle: int) -> InferenceResponse:
        try:
            return read(self._api, handle, self._model, self._callbacks.buffers)
        except Exception as error:  # whoever waits must hear of it
            return InferenceResponse(self._asked(), "", error=InternalError(f"the response cannot be read: {error}"))
        finally:
            self._api.InferenceResponseDelete(handle)

    def _asked(self) -> Model:
        """A model of the responses' own, which the server does not name."""
        return type(self._model)(self._model.server, self._model.name, self._model.version)

    def _end(self) -> None:
        with self._lock:
            self._ends -= 1
            if self._ends:
                return
            self._callbacks.leave(self._number)
            self._api.InferenceRequestDelete(self._handle)
        self._running.__exit__(None, None, None)
