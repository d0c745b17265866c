"""Requests to one model, a number of them at a time, for some time or as many as asked for."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["Answer", "Ask", "Extent", "Measurement", "ask", "ask_stream", "put_load"]

ERROR_PAUSE_S = 0.05
ERROR_TEXTS = 20
ERROR_LENGTH = 200


@dataclass(frozen=True)
class Answer:
    """What came of one request.

    Attributes:
        responses: How many; 1 but for streams.
        first: When the first one came, in :func:`time.perf_counter` seconds; None if none did.
    """

    responses: int
    first: float | None


Ask = Callable[[Sequence[NDArray[Any]]], Awaitable[Answer]]
"""Sends the inputs of one request and waits for all that comes back."""


@dataclass(frozen=True)
class Extent:
    """How much to send.

    Args:
        concurrency: Requests under way at a time.
        requests: Of all; None is no limit.
        duration_s: No request starts after that many seconds; None is no limit.
    """

    concurrency: int
    requests: int | None = None
    duration_s: float | None = None


@dataclass
class Measurement:
    """What was measured so far.

    Attributes:
        latencies_s: Of each request that was answered, to its last response.
        first_s: Likewise to its first response; without requests that had none.
        responses: To all requests together.
        errors: How often each text came.
        elapsed_s: From the beginning to the end of the last request.
    """

    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    first_s: array[float] = field(default_factory=lambda: array("d"))
    responses: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    elapsed_s: float = 0.0

    @property
    def finished(self) -> int:
        """Requests that were answered or failed."""
        return len(self.latencies_s) + self.errors.total()

    def add(self, start: float, answer: Answer, end: float) -> None:
        """Count a request that was answered; times in :func:`time.perf_counter` seconds."""
        self.latencies_s.append(end - start)
        self.responses += answer.responses
        if answer.first is not None:
            self.first_s.append(answer.first - start)

    def fail(self, error: PyTritonClientError) -> None:
        """Count a request that failed."""
        text = (str(error) or type(error).__name__).strip().partition("\n")[0][:ERROR_LENGTH]
        self.errors[text if text in self.errors or len(self.errors) < ERROR_TEXTS else "other errors"] += 1


def ask(client: AsyncioModelClient, *, batch: bool) -> Ask:
    """Of a model that answers each request once."""
    infer = client.infer_batch if batch else client.infer_sample

    async def ask_once(arrays: Sequence[NDArray[Any]]) -> Answer:
        await infer(*arrays)
        return Answer(1, None)

    return ask_once


def ask_stream(client: AsyncioDecoupledModelClient, *, batch: bool) -> Ask:
    """Of a decoupled model."""
    infer = client.infer_batch if batch else client.infer_sample

    async def ask_all(arrays: Sequence[NDArray[Any]]) -> Answer:
        responses, first = 0, None
        async for _ in infer(*arrays):
            responses += 1
            first = time.perf_counter() if first is None else first
        return Answer(responses, first)

    return ask_all


async def put_load(
    ask: Ask,
    inputs: Sequence[Sequence[NDArray[Any]]],
    extent: Extent,
    measurement: Measurement,
    stop: asyncio.Event,
) -> None:
    """Send requests and measure them; returns when the last one has ended.

    Args:
        ask: Sends one.
        inputs: Of the requests, in turn.
        extent: How much to send.
        measurement: Counts, also while this runs.
        stop: Once it is set, no request starts.
    """
    begin = time.perf_counter()
    turns = cycle(inputs)
    left = extent.requests

    async def send() -> None:
        nonlocal left
        while not stop.is_set():
            start = time.perf_counter()
            if extent.duration_s is not None and start - begin >= extent.duration_s:
                return
            if left is not None:
                if left == 0:
                    return
                left -= 1
            try:
                answer = await ask(next(turns))
            except PyTritonClientError as error:
                measurement.fail(error)
                await asyncio.sleep(ERROR_PAUSE_S)  # a server that is gone fails requests faster than one could read
            else:
                end = time.perf_counter()
                measurement.add(start, answer, end)
            measurement.elapsed_s = time.perf_counter() - begin

    await asyncio.gather(*(send() for _ in range(extent.concurrency)))
