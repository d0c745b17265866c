"""Requests in flight: sent, cancelled, and their responses as iterators give them, to threads and to coroutines.

The memory of a request's inputs stays until the server has released the request: ``in_flight`` keeps it. C++ keeps the
responses until they are fetched, and whatever the server still needs when Python needs the request no more.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from ctypes import byref, c_void_p
from itertools import count
from typing import Any, Protocol

from pytriton.inprocess.arguments import encode_name
from pytriton.inprocess.exceptions import InvalidTypeError, UnavailableError
from pytriton.inprocess.handle import check_process, is_forked
from pytriton.inprocess.memory import choose_allocator, place_of
from pytriton.inprocess.messages import (
    InferenceRequest,
    InferenceResponse,
    decode_response,
    encode_request,
    has_details,
    set_details,
)
from pytriton.inprocess.native import Buffers, NotificationQueue, RequestsLibrary, in_flight

__all__ = ["AsyncResponseIterator", "PendingRequest", "ResponseIterator", "Unread", "send_on_loop"]

SLICE_S = 1.0
RESPONSE_BYTES = 2048  # of a response in Python, beside its outputs
_numbers = count(1)


class PendingRequest:
    """A request as it is now; :meth:`send` sends it.

    Args:
        notifications: Gets the number with each response; None: :meth:`next` may wait for responses.

    Attributes:
        number: Identifies the request in C++ and in the queue.

    Raises:
        InvalidArgumentError: A field of the request is wrong.
    """

    __slots__ = ("_encoded", "_handle", "_library", "_model", "_pointer", "_request", "number")

    def __init__(self, request: InferenceRequest, notifications: NotificationQueue | None = None) -> None:
        self.number = next(_numbers)
        self._pointer = c_void_p()
        self._model = request.model
        self._handle = request.model.server.handle
        self._library: RequestsLibrary = self._handle.library
        self._request = request if has_details(request) else None
        place = None if request.output_memory_type is None else place_of(request.output_memory_type)
        allocator = choose_allocator(request.output_memory_allocator, place)
        hold = self._request is not None
        address = notifications.pointer if notifications else 0
        self._encoded, owners = encode_request(request, self.number, place, address, hold, allocator is not None)
        in_flight[self.number] = Buffers(owners, allocator)

    def send(self) -> None:
        """Send the request.

        Raises:
            TritonError: The server does not accept it, or a field of it is wrong.
        """
        check_process()
        library, pointer, c_request = self._library, self._pointer, c_void_p()
        try:
            name = encode_name(self._model.name)
            error = library.new(self._handle.pointer, name, self._encoded, byref(pointer), byref(c_request))
            if self._request is not None and not error:
                set_details(library.api, c_request, self._request)
                error = library.send(pointer)
                self._request = None  # it refers to the inputs
            if error:
                library.api.raise_error(error)
        except BaseException:
            # Now, not when the traceback is deleted: a stop of the server would wait for that.
            if not pointer or library.drop_unsent(pointer):
                in_flight.pop(self.number, None)
            pointer.value = None
            raise

    def next(self, timeout_s: float = math.inf) -> InferenceResponse | None:
        """Wait for the next response; None if it does not come within the time."""
        check_process()
        library, pointer = self._library, self._pointer
        buffers = in_flight.get(self.number)  # none after the last response
        block = library.next(pointer, 0)
        if not block:
            end = time.monotonic() + timeout_s
            # A signal ends a wait, so that its handler runs. One that comes just before a wait does not: hence slices.
            while not block and (left_s := end - time.monotonic()) > 0:
                block = library.wait_next(pointer, int(min(left_s, SLICE_S) * 1e9))
        if not block:
            return None
        assert buffers is not None
        try:
            return decode_response(block, self._model, buffers.allocated, library.free)
        finally:
            # As a rule, the server releases a request just after its last response, while that is decoded.
            if library.finish(pointer, block):
                in_flight.pop(self.number, None)

    def cancel(self) -> None:
        """Tell the server that nobody waits for responses any more; nothing happens if the request has ended."""
        check_process()
        self._library.cancel(self._pointer)

    def __del__(self) -> None:
        pointer = self._pointer
        if not is_forked() and (not pointer or self._library.drop(pointer)):
            in_flight.pop(self.number, None)


class _Queue(Protocol):
    def put_nowait(self, item: InferenceResponse) -> object: ...


class _Delivery:
    """Puts responses into queues as they come. Keeps each request, and its queues, until the last response."""

    def __init__(self, library: RequestsLibrary) -> None:
        self._requests: dict[int, tuple[PendingRequest, tuple[_Queue, ...]]] = {}
        self.notifications = NotificationQueue(library, self._deliver)

    def send(self, request: InferenceRequest, *queues: _Queue) -> PendingRequest:
        """Send a request; errors as :meth:`PendingRequest.send`."""
        pending = PendingRequest(request, self.notifications)
        self._requests[pending.number] = pending, queues
        try:
            pending.send()
        except BaseException:
            del self._requests[pending.number]
            raise
        return pending

    def _deliver(self, number: int) -> None:
        if number not in self._requests:
            return  # all responses were there at an earlier notification
        pending, queues = self._requests[number]
        while (response := pending.next(0)) is not None:
            if response.final:
                del self._requests[number]
            for each in queues:
                each.put_nowait(response)


_lock = threading.Lock()
_thread_delivery: _Delivery | None = None
_loop_deliveries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Delivery] = weakref.WeakKeyDictionary()


def _delivery_on_thread(library: RequestsLibrary) -> _Delivery:
    global _thread_delivery
    with _lock:
        if _thread_delivery is None:
            _thread_delivery = _Delivery(library)
            _thread_delivery.notifications.read_on_thread("pytriton-inprocess-queues")
        return _thread_delivery


def _delivery_on_loop(library: RequestsLibrary, loop: asyncio.AbstractEventLoop) -> _Delivery:
    with _lock:
        if loop not in _loop_deliveries:
            for each in [each for each in _loop_deliveries if each.is_closed()]:
                del _loop_deliveries[each]  # its requests refer to it
            made = _loop_deliveries[loop] = _Delivery(library)
            loop.call_soon_threadsafe(made.notifications.read_on_loop, loop)
        return _loop_deliveries[loop]


def send_on_loop(request: InferenceRequest, loop: asyncio.AbstractEventLoop, *queues: _Queue) -> PendingRequest:
    """Send a request whose responses an event loop puts into queues, as they come.

    Raises:
        TritonError: The server does not accept the request.
    """
    return _delivery_on_loop(request.model.server.handle.library, loop).send(request, *queues)


class _Responses:
    """What both iterators have in common."""

    _pending: PendingRequest

    def __init__(self, raise_on_error: bool) -> None:
        self._raise_on_error = raise_on_error
        self._ended = False  # whether the last response was returned

    def cancel(self) -> None:
        """Tell the server that nobody waits for responses any more.

        The next response is an error as a rule, but may be the model's. Nothing happens if the request is answered.
        """
        self._pending.cancel()

    def _checked(self, response: InferenceResponse) -> InferenceResponse:
        self._ended = response.final
        if response.error is not None and self._raise_on_error:
            response.error.args += (response,)
            raise response.error
        return response


class ResponseIterator(_Responses, Iterator[InferenceResponse]):
    """Waits for each response in turn, and ends after the last one.

    Several threads may use it: each response is returned to one of them.

    Args:
        raise_on_error: Whether to raise the error of a response that has one. The error's ``args`` end with the
            response. Iteration may go on afterwards, if that was not the last response.

    Raises:
        TritonError: The server does not accept the request.
    """

    def __init__(self, request: InferenceRequest, raise_on_error: bool = False) -> None:
        super().__init__(raise_on_error)
        copies = request.response_queue
        if copies is not None and not isinstance(copies, queue.SimpleQueue):
            raise InvalidTypeError(f"response_queue is {copies!r}; infer() takes a queue.SimpleQueue")
        self._lock = threading.Lock()
        self._responses: queue.SimpleQueue[InferenceResponse] | None = None
        if copies is None:
            self._pending = PendingRequest(request)
            self._pending.send()
        else:
            self._responses = queue.SimpleQueue()
            delivery = _delivery_on_thread(request.model.server.handle.library)
            self._pending = delivery.send(request, self._responses, copies)

    def __next__(self) -> InferenceResponse:
        with self._lock:  # otherwise a thread would wait for ever for a response after the last one
            if self._ended:
                raise StopIteration
            response = self._pending.next() if self._responses is None else self._responses.get()
            assert response is not None
            return self._checked(response)


class Unread(Protocol):
    """Says how much of a stream may wait to be read."""

    def grow(self, size: int) -> bool:
        """Count bytes that have come; False if they are too many."""

    def shrink(self, size: int) -> None:
        """Count bytes that were read, or dropped."""


class _LimitedQueue:
    """Responses that wait to be read. When they are too many, an error takes their place, and the request is cancelled.

    A callable yields as fast as it can, whoever reads.

    Args:
        unread: Says how many are too many.

    Attributes:
        cancel: Cancels the request.
    """

    def __init__(self, unread: Unread) -> None:
        self.cancel: Callable[[], None]
        self._unread = unread
        self._responses: deque[InferenceResponse] = deque()
        self._sizes: deque[int] = deque()
        self._arrived = asyncio.Event()
        self._is_over = False

    def put_nowait(self, response: InferenceResponse) -> None:
        """Add a response."""
        if self._is_over:
            return
        size = RESPONSE_BYTES + sum(each.size for each in response.outputs.values())
        if not self._unread.grow(size):
            self._is_over = True
            self._unread.shrink(size + sum(self._sizes))
            self._responses.clear()
            self._sizes.clear()
            text = "the stream is not read, and its responses take all memory that they may"
            response, size = InferenceResponse(response.model, error=UnavailableError(text), final=True), 0
            self.cancel()
        self._responses.append(response)
        self._sizes.append(size)
        self._arrived.set()

    async def get(self) -> InferenceResponse:
        """Take the next response. For one task."""
        while not self._responses:
            self._arrived.clear()
            await self._arrived.wait()
        self._unread.shrink(self._sizes.popleft())
        return self._responses.popleft()


class AsyncResponseIterator(_Responses, AsyncIterator[InferenceResponse]):
    """The same for coroutines, on the loop that runs when it is made. Several tasks may use it.

    Args:
        raise_on_error: As for :class:`ResponseIterator`.
        loop: Another loop to use.
        unread: Limits the responses that wait; then one task may use it, on the loop that runs.

    Raises:
        RuntimeError: No loop runs, and none is given.
        TritonError: The server does not accept the request.
    """

    def __init__(
        self,
        request: InferenceRequest,
        raise_on_error: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        unread: Unread | None = None,
    ) -> None:
        super().__init__(raise_on_error)
        copies = request.response_queue
        if copies is not None and not isinstance(copies, asyncio.Queue):
            raise InvalidTypeError(f"response_queue is {copies!r}; async_infer() takes an asyncio.Queue")
        limited = None if unread is None else _LimitedQueue(unread)
        self._responses: Any = limited or asyncio.Queue()
        queues = [self._responses] if copies is None else [self._responses, copies]
        self._pending = send_on_loop(request, asyncio.get_running_loop() if loop is None else loop, *queues)
        if limited is not None:
            limited.cancel = self._pending.cancel

    async def __anext__(self) -> InferenceResponse:
        if self._ended:
            raise StopAsyncIteration
        response: InferenceResponse | None = await self._responses.get()
        if isinstance(self._responses, asyncio.Queue) and (response is None or response.final):
            self._responses.put_nowait(None)  # for the next task that waits
        if response is None:
            raise StopAsyncIteration
        return self._checked(response)
