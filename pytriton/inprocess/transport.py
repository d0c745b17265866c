"""What clients' conversations run on when the server is in this process: for threads, and for coroutines."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientInferenceServerError
from pytriton.inprocess.dialect import Dialect, InferResult
from pytriton.inprocess.exceptions import TritonError
from pytriton.inprocess.flight import Flight
from pytriton.inprocess.iterators import AsyncResponseIterator
from pytriton.inprocess.response import InferenceResponse

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["AsyncInprocessTransport", "InprocessTransport", "Responses"]


class InprocessTransport:
    """Calls a server from threads. A stream of responses has to end before the next begins, as over a network.

    Args:
        dialect: How calls are put.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._responses: Responses | None = None

    def call(self, call: Call) -> Any:
        """Perform one call; the timeout bounds inferences alone: nothing else waits for others."""
        if call.method != "infer":
            return self._dialect.ask(call)
        responses = Responses(self._dialect, call)
        try:
            return self._dialect.result(call, responses.receive())
        finally:
            responses.close()

    def stream(self, call: Call) -> Responses:
        """Send a request; its responses are received one by one.

        Raises:
            PyTritonClientInferenceServerError: Those of an earlier request have not been received to the end.
            PyTritonClientError: The request was refused.
        """
        if self._responses is not None and not self._responses.ended:
            raise PyTritonClientInferenceServerError(
                "the responses to an earlier request have not all been received; take them all, or close() their "
                "iterator, or use one client for each stream"
            )
        self._responses = Responses(self._dialect, call)
        return self._responses

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Cancel the stream, if there is one; whoever iterates over it gets PyTritonClientClosedError."""
        if self._responses is not None:
            self._responses.abandon()


class Responses:
    """The responses to one request, which is sent at once.

    Args:
        dialect: How it is put.
        call: It.

    Attributes:
        ended: Whether there are no more.

    Raises:
        PyTritonClientError: The server refused.
    """

    def __init__(self, dialect: Dialect, call: Call) -> None:
        self.ended = self._abandoned = False
        self._dialect = dialect
        self._call = call
        try:
            request = dialect.request(call)
            self._flight = Flight(request, None)
            self._flight.depart(request)
        except TritonError as error:
            self.ended = True
            raise dialect.translate(call, error) from error

    def next(self) -> InferResult | None:
        """Wait for the next response of a stream; None if there is none.

        Raises:
            PyTritonClientError: It did not come in time, it is an error, or the client was closed.
        """
        if self.ended and not self._abandoned:
            return None
        try:
            response = self.receive()
            result = self._dialect.result(self._call, response)
        except BaseException:
            self.close()
            raise
        # A last response without outputs only says that it is the last one.
        return None if response.final and not response.outputs else result

    def receive(self) -> InferenceResponse:
        """The next response.

        Raises:
            PyTritonClientTimeoutError: It did not come in time.
            PyTritonClientClosedError: The client was closed.
        """
        response = self._flight.next(self._call.timeout_s)
        if response is None:
            raise self._dialect.timeout(self._call)
        if self._abandoned:
            raise PyTritonClientClosedError("the client was closed before all responses had been received")
        self.ended = response.final
        return response

    def close(self) -> None:
        """Cancel the request, unless its last response has come."""
        if not self.ended:
            self.ended = True
            self._flight.cancel()

    def abandon(self) -> None:
        """Cancel the request, because the client is closed."""
        if not self.ended:
            self._abandoned = True
        self.close()


class AsyncInprocessTransport:
    """Calls a server from coroutines, any number at once.

    Args:
        dialect: How calls are put.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def call(self, call: Call) -> Any:
        """Perform one call; one that is cancelled is cancelled in the server, too."""
        if call.method in ("load_model", "unload_model"):
            return await asyncio.get_running_loop().run_in_executor(None, self._dialect.ask, call)
        if call.method != "infer":
            return self._dialect.ask(call)
        responses = self._send(call)
        try:
            return self._dialect.result(call, await self._receive(call, responses))
        finally:
            responses.cancel()

    async def stream(self, call: Call) -> AsyncGenerator[InferResult, None]:
        """Send a request; the responses to it as they come. Closing the generator cancels it.

        Raises:
            PyTritonClientError: A response did not come in time, or is an error.
        """
        responses = self._send(call)
        try:
            final = False
            while not final:
                response = await self._receive(call, responses)
                result, final = self._dialect.result(call, response), response.final
                if response.outputs or not final:
                    yield result
        finally:
            responses.cancel()

    def _send(self, call: Call) -> AsyncResponseIterator:
        try:
            return AsyncResponseIterator(self._dialect.request(call))
        except TritonError as error:
            raise self._dialect.translate(call, error) from error

    async def _receive(self, call: Call, responses: AsyncResponseIterator) -> InferenceResponse:
        try:
            async with timeout(None if math.isinf(call.timeout_s) else call.timeout_s):
                return await anext(responses)
        except asyncio.TimeoutError as error:  # in Python 3.10 it is not the built-in TimeoutError
            raise self._dialect.timeout(call) from error

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Nothing is open."""
