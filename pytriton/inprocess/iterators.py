"""The responses to a request, as they come: for threads, and for coroutines."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator

from pytriton.inprocess.arrivals import arrivals_of_this_process, arrivals_on
from pytriton.inprocess.exceptions import InvalidTypeError
from pytriton.inprocess.flight import Flight
from pytriton.inprocess.request import InferenceRequest
from pytriton.inprocess.response import InferenceResponse

__all__ = ["AsyncResponseIterator", "ResponseIterator"]


class _Responses:
    """What both iterators do.

    Attributes:
        _ended: Whether the final response was given.
    """

    _flight: Flight

    def __init__(self, raise_on_error: bool) -> None:
        self._raise_on_error = raise_on_error
        self._ended = False

    def cancel(self) -> None:
        """Tell the server that nobody waits any more: the next response is an error as a rule, but may be the model's.

        Nothing happens to a request that is answered.
        """
        self._flight.cancel()

    def _given(self, response: InferenceResponse) -> InferenceResponse:
        self._ended = response.final
        if response.error is not None and self._raise_on_error:
            response.error.args += (response,)
            raise response.error
        return response


class ResponseIterator(_Responses, Iterator[InferenceResponse]):
    """Waits for each response in turn, and ends after the final one.

    Threads may share it: each response goes to one of them.

    Args:
        request: Is sent by the constructor.
        raise_on_error: Whether a response with an error is raised: the error then, whose ``args`` end with the
            response. Iteration may go on afterwards, if that was not the final one.

    Raises:
        TritonError: The request was not accepted.
    """

    def __init__(self, request: InferenceRequest, raise_on_error: bool = False) -> None:
        super().__init__(raise_on_error)
        copies = request.response_queue
        if copies is not None and not isinstance(copies, queue.SimpleQueue):
            raise InvalidTypeError(f"response_queue is {copies!r}; infer() takes a queue.SimpleQueue")
        self._turn = threading.Lock()
        self._responses: queue.SimpleQueue[InferenceResponse] | None = None
        if copies is None:
            self._flight = Flight(request, None)
            self._flight.depart(request)
        else:
            self._responses = queue.SimpleQueue()
            self._flight = arrivals_of_this_process(request).send(request, self._responses, copies)

    def __next__(self) -> InferenceResponse:
        with self._turn:  # else a thread would wait for ever for what follows the final response
            if self._ended:
                raise StopIteration
            response = self._flight.next() if self._responses is None else self._responses.get()
            assert response is not None
            return self._given(response)


class AsyncResponseIterator(_Responses, AsyncIterator[InferenceResponse]):
    """The same for coroutines, on the loop that runs when it is made. Tasks may share it.

    Args:
        request: Is sent by the constructor.
        raise_on_error: As for :class:`ResponseIterator`.
        loop: Another loop to be used on.

    Raises:
        RuntimeError: No loop runs, and none is given.
        TritonError: The request was not accepted.
    """

    def __init__(
        self,
        request: InferenceRequest,
        raise_on_error: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(raise_on_error)
        copies = request.response_queue
        if copies is not None and not isinstance(copies, asyncio.Queue):
            raise InvalidTypeError(f"response_queue is {copies!r}; async_infer() takes an asyncio.Queue")
        self._responses: asyncio.Queue[InferenceResponse | None] = asyncio.Queue()
        queues = [self._responses] if copies is None else [self._responses, copies]
        loop = asyncio.get_running_loop() if loop is None else loop
        self._flight = arrivals_on(loop, request).send(request, *queues)

    async def __anext__(self) -> InferenceResponse:
        if self._ended:
            raise StopAsyncIteration
        response = await self._responses.get()
        if response is None or response.final:
            self._responses.put_nowait(None)  # for the next task that waits
        if response is None:
            raise StopAsyncIteration
        return self._given(response)
