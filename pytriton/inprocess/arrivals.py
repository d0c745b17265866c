"""Responses for those who do not wait for them in a call: they are put into queues as they come."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from pytriton.inprocess.flight import Flight
from pytriton.inprocess.mailbox import Mailbox
from pytriton.inprocess.response import InferenceResponse

if TYPE_CHECKING:
    from pytriton.inprocess.flight_library import FlightLibrary
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["arrivals_of_this_process", "arrivals_on"]

_lock = threading.Lock()
_of_this_process: Arrivals | None = None
_on_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Arrivals] = weakref.WeakKeyDictionary()


class _Queue(Protocol):
    def put_nowait(self, item: InferenceResponse) -> object: ...


class Arrivals:
    """The flights whose responses go to queues; each, and its queues, are kept until the last one."""

    def __init__(self, library: FlightLibrary) -> None:
        self._expected: dict[int, tuple[Flight, tuple[_Queue, ...]]] = {}
        self.mailbox = Mailbox(library, self._arrive)

    def send(self, request: InferenceRequest, *queues: _Queue) -> Flight:
        """Send a request.

        Raises:
            TritonError: The server does not accept it, or something in it is wrong.
        """
        flight = Flight(request, self.mailbox)
        self._expected[flight.number] = flight, queues
        try:
            flight.depart(request)
        except BaseException:
            del self._expected[flight.number]
            raise
        return flight

    def _arrive(self, number: int) -> None:
        if number not in self._expected:
            return  # its responses were all there when an earlier one was fetched
        flight, queues = self._expected[number]
        while (response := flight.next(0)) is not None:
            if response.final:
                del self._expected[number]
            for queue in queues:
                queue.put_nowait(response)


def arrivals_of_this_process(request: InferenceRequest) -> Arrivals:
    """Those on a thread of their own, which looks after them."""
    global _of_this_process
    with _lock:
        if _of_this_process is None:
            _of_this_process = Arrivals(request.model.server.running.flights)
            _of_this_process.mailbox.read_on_a_thread("pytriton-inprocess-queues")
        return _of_this_process


def arrivals_on(loop: asyncio.AbstractEventLoop, request: InferenceRequest) -> Arrivals:
    """Those on an event loop."""
    with _lock:
        if loop not in _on_loops:
            for each in [each for each in _on_loops if each.is_closed()]:
                del _on_loops[each]  # its requests keep it otherwise
            made = _on_loops[loop] = Arrivals(request.model.server.running.flights)
            loop.call_soon_threadsafe(made.mailbox.read_on, loop)
        return _on_loops[loop]
