"""A load on one model: random inputs from its configuration, and a number of requests in flight."""

from __future__ import annotations

import asyncio
import signal
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from pytriton.cli.errors import InputError
from pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.model_config.warmup import WarmupInput, generate_warmup_data

__all__ = [
    "LoadOptions",
    "Measurement",
    "RandomInputs",
    "RequestResult",
    "Send",
    "count_error",
    "parse_shapes",
    "run_load",
    "stopped_by_signals",
    "stream_sender",
    "unary_sender",
]

ERROR_PAUSE_S = 0.05
ERROR_TEXTS = 20
ERROR_LENGTH = 200

Shape = tuple[int, ...]


class RandomInputs:
    """Makes random inputs for a model.

    Args:
        batch_size: Rows of a request; None means one row, or no batch axis for a model without batching.
        shapes: Input name to its dimensions without the batch axis.
        dynamic_size: The size of open dimensions (-1) of the other inputs.

    Raises:
        InputError: The batch size or a shape does not fit the model.

    Attributes:
        rows: Rows of a request; 0 without a batch axis.
    """

    def __init__(
        self,
        config: TritonModelConfig,
        batch_size: int | None = None,
        shapes: Mapping[str, Shape] | None = None,
        dynamic_size: int = 1,
    ) -> None:
        self.rows = _rows(config, batch_size)
        specs = {spec.name: spec for spec in config.inputs or ()}
        shapes = shapes or {}
        if unknown := sorted(shapes.keys() - specs.keys()):
            raise InputError(
                f"model {config.model_name!r} has no input {unknown[0]!r}; it has {', '.join(specs) or 'none'}"
            )
        self._inputs = {
            name: WarmupInput(spec.dtype, _shape(spec, shapes.get(name), dynamic_size), random_data=True)
            for name, spec in specs.items()
        }

    def arrays(self) -> list[NDArray[Any]]:
        """New random arrays, in the order of the model's inputs."""
        return [generate_warmup_data(each, self.rows) for each in self._inputs.values()]

    def describe(self) -> list[dict[str, Any]]:
        """Name, dtype and shape with the batch axis of each input."""
        rows = (self.rows,) if self.rows else ()
        return [
            {"name": name, "dtype": triton_name(each.dtype), "shape": [*rows, *each.shape]}
            for name, each in self._inputs.items()
        ]


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Read texts of the form ``name=3,224,224`` or ``name:3,224``.

    Raises:
        InputError: A text has another form, or a size is below 1.
    """
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=" if "=" in text else ":")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shape = ()
        if not name or not shape or min(shape) < 1:
            raise InputError(f"shape {text!r} is not of the form name=3,224 with sizes above 0")
        shapes[name] = shape
    return shapes


def _rows(config: TritonModelConfig, batch_size: int | None) -> int:
    limit = config.max_batch_size
    if limit == 0 and batch_size is not None:
        raise InputError(f"model {config.model_name!r} does not support batching; leave the batch size out")
    if batch_size is not None and batch_size > limit:
        raise InputError(f"model {config.model_name!r} takes batches of up to {limit} rows, not {batch_size}")
    return 0 if limit == 0 else batch_size or 1


def _shape(spec: TensorSpec, chosen: Shape | None, dynamic_size: int) -> Shape:
    # Clients send one value per row as (rows, 1).
    declared = spec.shape or (1,)
    if chosen is None:
        return tuple(dynamic_size if size == -1 else size for size in declared)
    if len(chosen) != len(declared) or any(want not in (-1, size) for want, size in zip(declared, chosen, strict=True)):
        listed = ",".join("any" if size == -1 else str(size) for size in declared)
        raise InputError(
            f"input {spec.name!r} has the shape {listed} without the batch axis, which {chosen} does not fit"
        )
    return chosen


@dataclass(frozen=True)
class RequestResult:
    """The responses to one request.

    Attributes:
        responses: Their number; 1 except for streams.
        first: When the first response arrived, in :func:`time.perf_counter` seconds; None for unary requests and for
            empty streams.
    """

    responses: int
    first: float | None


Send = Callable[[Sequence[NDArray[Any]]], Awaitable[RequestResult]]
"""Sends the inputs of one request and waits for all responses."""


def unary_sender(client: AsyncioModelClient, *, batch: bool) -> Send:
    """Sends requests to a model that gives one response to each."""
    infer = client.infer_batch if batch else client.infer_sample

    async def send(arrays: Sequence[NDArray[Any]]) -> RequestResult:
        await infer(*arrays)
        return RequestResult(1, None)

    return send


def stream_sender(client: AsyncioDecoupledModelClient, *, batch: bool) -> Send:
    """Sends requests to a decoupled model."""
    infer = client.infer_batch if batch else client.infer_sample

    async def send(arrays: Sequence[NDArray[Any]]) -> RequestResult:
        responses, first = 0, None
        async for _ in infer(*arrays):
            responses += 1
            first = time.perf_counter() if first is None else first
        return RequestResult(responses, first)

    return send


@dataclass(frozen=True)
class LoadOptions:
    """The size of a load.

    Args:
        concurrency: Requests in flight.
        requests: The number of all requests; None is no limit.
        duration_s: No request starts after this many seconds; None is no limit.
    """

    concurrency: int
    requests: int | None = None
    duration_s: float | None = None


@dataclass
class Measurement:
    """The measurements so far.

    Attributes:
        latencies_s: Seconds to the last response, of each answered request.
        first_s: Seconds to the first response, of each answered stream with responses.
        responses: Responses to all requests.
        errors: Failed requests by error text.
        elapsed_s: Seconds from the start of the load to the end of the last request.
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

    def add(self, start: float, result: RequestResult, end: float) -> None:
        """Count an answered request; times in :func:`time.perf_counter` seconds."""
        self.latencies_s.append(end - start)
        self.responses += result.responses
        if result.first is not None:
            self.first_s.append(result.first - start)


def count_error(errors: Counter[str], error: Exception) -> None:
    """Count a failed request by the first line of its error, as long as these are few."""
    text = (str(error) or type(error).__name__).strip().partition("\n")[0][:ERROR_LENGTH]
    errors[text if text in errors or len(errors) < ERROR_TEXTS else "other errors"] += 1


@contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first signal sets the event; the next one has its usual effect."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def run_load(
    send: Send,
    inputs: Sequence[Sequence[NDArray[Any]]],
    options: LoadOptions,
    measurement: Measurement,
    stop: asyncio.Event,
) -> None:
    """Send requests and measure them; returns when the last one has ended.

    Args:
        inputs: The inputs of the requests, in rotation.
        measurement: Receives the measurements while the load runs.
        stop: No request starts after this event is set.
    """
    begin = time.perf_counter()
    rotation = cycle(inputs)
    left = options.requests

    async def repeat() -> None:
        nonlocal left
        while not stop.is_set():
            start = time.perf_counter()
            if options.duration_s is not None and start - begin >= options.duration_s:
                return
            if left is not None:
                if left == 0:
                    return
                left -= 1
            try:
                result = await send(next(rotation))
            except PyTritonClientError as error:
                count_error(measurement.errors, error)
                await asyncio.sleep(ERROR_PAUSE_S)  # an unreachable server fails requests at once
            else:
                measurement.add(start, result, time.perf_counter())
            measurement.elapsed_s = time.perf_counter() - begin

    await asyncio.gather(*(repeat() for _ in range(options.concurrency)))
