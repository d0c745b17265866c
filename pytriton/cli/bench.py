"""``pytriton bench``: a load test of one model."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pytriton.cli.inputs import Inputs, Shape
from pytriton.cli.load import Ask, Extent, Measurement, ask, ask_stream, put_load
from pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.auth import Tls
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["Bench", "Outcome"]

DIFFERENT_REQUESTS = 16
PROGRESS_PERIOD_S = 0.2
HUNDRED = 100.0


@dataclass(frozen=True)
class Outcome:
    """What a load test has to tell.

    Attributes:
        measurement: Of the requests after the warm-up.
        inputs: What the requests were made of.
        interrupted: Whether the user ended it early.
    """

    measurement: Measurement
    inputs: Inputs
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        """What the figures do not say, for JSON."""
        return {"inputs": self.inputs.describe(), "interrupted": self.interrupted}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A load test.

    Args:
        url: Server.
        model: Name of the model.
        version: Of the model; None is the highest.
        extent: How much to send.
        warmup_s: Seconds of the same load before, which do not count.
        batch_size: Rows of a request; None is one.
        shapes: Input name to its dimensions without the batch axis.
        dynamic_size: The size of dimensions that the model leaves open otherwise.
        init_timeout_s: To wait for the model.
        timeout_s: Of a request; with decoupled models, of each response.
        access_token: Of the server.
        tls: Encrypts the connection.
    """

    url: str
    model: str
    version: str | None
    extent: Extent
    warmup_s: float
    batch_size: int | None
    shapes: dict[str, Shape]
    dynamic_size: int
    init_timeout_s: float
    timeout_s: float
    access_token: str | None
    tls: Tls | None

    async def run(self, console: Console) -> Outcome:
        """Put the load on the server. The first SIGINT or SIGTERM ends it early, with what was measured until then.

        Args:
            console: Shows the progress.

        Raises:
            PyTritonClientError: The model is not to be had; failures of requests are counted instead.
            InputError: The inputs do not fit the model.
        """
        arguments: dict[str, Any] = {
            "inference_timeout_s": self.timeout_s,
            "access_token": self.access_token,
            "tls": self.tls,
        }
        async with AsyncioModelClient(
            self.url, self.model, self.version, init_timeout_s=self.init_timeout_s, **arguments
        ) as client:
            config = await client.model_config
            inputs = self._inputs(config)
            if not config.decoupled:
                return await self._measure(ask(client, batch=inputs.rows > 0), inputs, console)
        async with AsyncioDecoupledModelClient(
            self.url, self.model, self.version, model_config=config, ensure_model_is_ready=False, **arguments
        ) as streams:
            return await self._measure(ask_stream(streams, batch=inputs.rows > 0), inputs, console)

    def title(self, outcome: Outcome) -> str:
        """What was done, in one line."""
        inputs = ", ".join(f"{each['name']} {each['dtype']} {each['shape']}" for each in outcome.inputs.describe())
        early = " (interrupted)" if outcome.interrupted else ""
        return f"{self.model} at {self.url}, {self.extent.concurrency} at a time{early}; {inputs or 'no inputs'}"

    def settings(self) -> dict[str, Any]:
        """What the user asked for, for JSON."""
        chosen = {"url": self.url, "model": self.model, "model_version": self.version, "warmup_s": self.warmup_s}
        return {**chosen, **asdict(self.extent)}

    def _inputs(self, config: TritonModelConfig) -> Inputs:
        return Inputs(config, self.batch_size, self.shapes, self.dynamic_size)

    async def _measure(self, ask: Ask, inputs: Inputs, console: Console) -> Outcome:
        arrays = [inputs.arrays() for _ in range(DIFFERENT_REQUESTS)]
        measurement, stop = Measurement(), asyncio.Event()
        with _stopped_by_signals(stop), _progress(console) as progress:
            if self.warmup_s:
                warmup = replace(self.extent, requests=None, duration_s=self.warmup_s)
                await _show(progress, "warming up", ask, arrays, warmup, Measurement(), stop)
            await _show(progress, "measuring", ask, arrays, self.extent, measurement, stop)
        return Outcome(measurement, inputs, stop.is_set())


async def _show(
    progress: Progress,
    what: str,
    ask: Ask,
    arrays: Sequence[Sequence[NDArray[Any]]],
    extent: Extent,
    measurement: Measurement,
    stop: asyncio.Event,
) -> None:
    """Put a load, and show how far it is."""
    task = progress.add_task(what, total=HUNDRED, rate="")
    load = asyncio.ensure_future(put_load(ask, arrays, extent, measurement, stop))
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        while not load.done():
            await asyncio.wait([load], timeout=PROGRESS_PERIOD_S)
            _update(progress, task, extent, measurement, loop.time() - start)
        await load
    finally:
        load.cancel()
    if not stop.is_set():
        progress.update(task, completed=HUNDRED)


def _update(progress: Progress, task: TaskID, extent: Extent, measurement: Measurement, elapsed_s: float) -> None:
    by_time = elapsed_s / extent.duration_s if extent.duration_s else 0.0
    by_count = measurement.finished / extent.requests if extent.requests else 0.0
    failed = f", {measurement.errors.total():,} failed" if measurement.errors else ""
    rate = f"{measurement.finished / elapsed_s:,.0f} requests/s{failed}"
    progress.update(task, completed=min(HUNDRED, HUNDRED * max(by_time, by_count)), rate=rate)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=console,
    )


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first signal sets the event; another one does what it does without this."""
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
