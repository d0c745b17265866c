"""The responses to a request, as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from pytriton.inprocess.exceptions import InvalidArgumentError
from pytriton.inprocess.flight import Flight
from pytriton.inprocess.request import InferenceRequest
from pytriton.inprocess.response import InferenceResponse

__all__ = ["ResponseIterator"]


class ResponseIterator(Iterator[InferenceResponse]):
    """Waits for each response in turn, and ends after the final one.

    Args:
        request: Is sent by the constructor.
        raise_on_error: Whether a response with an error is raised: the error then, whose ``args`` end with the
            response. Iteration may go on afterwards, if that was not the final one.

    Raises:
        TritonError: The request was not accepted.
    """

    def __init__(self, request: InferenceRequest, raise_on_error: bool = False) -> None:
        given = request.response_queue
        if given is not None and not isinstance(given, queue.SimpleQueue):
            raise InvalidArgumentError(f"response_queue is {given!r}; infer() takes a queue.SimpleQueue")
        self._responses: queue.SimpleQueue[InferenceResponse] = queue.SimpleQueue()
        self._raise_on_error = raise_on_error
        self._ended = False
        self._given: queue.SimpleQueue[InferenceResponse] | None = given
        self._flight = Flight(request, self._put)

    def __next__(self) -> InferenceResponse:
        if self._ended:
            raise StopIteration
        response = self._responses.get()
        self._ended = response.final
        if response.error is not None and self._raise_on_error:
            response.error.args += (response,)
            raise response.error
        return response

    def cancel(self) -> None:
        """Tell the server that nobody waits any more: the next response is an error as a rule, but may be the model's.

        Nothing happens to a request that is answered.
        """
        self._flight.cancel()

    def _put(self, response: InferenceResponse) -> None:
        self._responses.put(response)
        if self._given is not None:
            self._given.put(response)
