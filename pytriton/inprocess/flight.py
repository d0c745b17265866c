"""A request on its way through the server.

Its inputs stay in memory until the server has let go of it: :mod:`pytriton.inprocess.cargo` keeps them. The rest is in
C++: its responses, until they are fetched, and what the server still needs when Python has no more use for it.
"""

from __future__ import annotations

import math
import time
from ctypes import byref, c_void_p
from itertools import count
from typing import TYPE_CHECKING

from pytriton.inprocess.allocators import made_by
from pytriton.inprocess.cargo import Cargo, aloft
from pytriton.inprocess.mailbox import Mailbox
from pytriton.inprocess.memory import place_of
from pytriton.inprocess.parameters import c_name
from pytriton.inprocess.request_writer import has_details, packed, write_details
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.response_reader import read
from pytriton.inprocess.running import check_process, is_forked

if TYPE_CHECKING:
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["Flight"]

SLICE_S = 1.0
_numbers = count(1)


class Flight:
    """A request, as it is now; :meth:`depart` sends it.

    Args:
        request: It.
        news: Gets the flight's number with each response; None: :meth:`next` may wait for them.

    Attributes:
        number: By which the mailbox, and C++, know it.

    Raises:
        InvalidArgumentError: Something in it is wrong.
    """

    __slots__ = ("_handle", "_has_details", "_library", "_model", "_running", "_text", "number")

    def __init__(self, request: InferenceRequest, news: Mailbox | None) -> None:
        self.number = next(_numbers)
        self._handle = c_void_p()
        self._model = request.model
        self._running = request.model.server.running
        self._library = self._running.flights
        wish = None if request.output_memory_type is None else place_of(request.output_memory_type)
        allocator = made_by(request.output_memory_allocator, wish)
        self._has_details = hold = has_details(request)
        pointer = news.pointer if news else 0
        self._text, owners = packed(request, self.number, wish, pointer, hold, allocator is not None)
        aloft[self.number] = Cargo(owners, allocator)

    def depart(self, request: InferenceRequest) -> None:
        """Send the request.

        Raises:
            TritonError: The server does not accept it, or something in it is wrong.
        """
        check_process()
        handle, c_request = self._handle, c_void_p()
        library = self._library
        try:
            error = library.new(
                self._running.airspace, c_name(self._model.name), self._text, byref(handle), byref(c_request)
            )
            if self._has_details and not error:
                write_details(library.api, c_request, request)
                error = library.send(handle)
            if error:
                library.api.raise_error(error)
        except BaseException:
            # Now, not when the traceback goes: the server would wait for it.
            if not handle or library.drop_waiting(handle):
                aloft.pop(self.number, None)
            handle.value = None
            raise

    def next(self, timeout_s: float = math.inf) -> InferenceResponse | None:
        """Wait for the next response; None if it has not come by then."""
        check_process()
        library, handle = self._library, self._handle
        cargo = aloft.get(self.number)  # which goes once the last response is fetched
        block = library.next(handle, 0)
        if not block:
            end = time.monotonic() + timeout_s
            # At a signal there is none: its handler runs now. It may have come just before the wait, hence the slices.
            while not block and (left_s := end - time.monotonic()) > 0:
                block = library.wait_next(handle, int(min(left_s, SLICE_S) * 1e9))
        if not block:
            return None
        assert cargo is not None
        try:
            return read(block, self._model, cargo, library.free)
        finally:
            # The server lets go of a request just after its last response, as a rule while that is read.
            if library.finish(handle, block):
                aloft.pop(self.number, None)

    def cancel(self) -> None:
        """Tell the server that nobody waits any more; nothing, if the flight has ended."""
        check_process()
        self._library.cancel(self._handle)

    def __del__(self) -> None:
        handle = self._handle
        if not is_forked() and (not handle or self._library.drop(handle)):
            aloft.pop(self.number, None)
