"""``pytriton bench``: a load test of one model, and its figures as a table, a histogram and JSON."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pytriton.cli import options
from pytriton.cli.errors import exit_on_error
from pytriton.cli.load import (
    LoadOptions,
    Measurement,
    RandomInputs,
    Send,
    Shape,
    parse_shapes,
    run_load,
    stopped_by_signals,
    stream_sender,
    unary_sender,
)
from pytriton.cli.terminal import wide_console
from pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.auth import Tls
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["Bench", "Outcome", "Percentiles", "Summary", "bench", "histogram"]

DEFAULT_DURATION_S = 10.0
DIFFERENT_REQUESTS = 16
PROGRESS_PERIOD_S = 0.2
HUNDRED = 100.0
MS = 1000.0
BINS = 20
BAR_COLUMNS = 40
LOGARITHMIC_RATIO = 10
"""The histogram's axis is logarithmic from this ratio of the longest latency to the shortest one."""


def bench(
    url: options.Url,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    model_version: options.ModelVersion = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")] = 16,
    requests: Annotated[int | None, typer.Option("--requests", "-n", min=1, help="How many requests.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", "-d", min=0.001, help="For how many seconds.", show_default="10, without --requests"
        ),
    ] = None,
    warmup: Annotated[float, typer.Option(min=0, help="Seconds of the same load before the measurement.")] = 1.0,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", min=1, help="Rows of a request.", show_default="1")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=SIZES",
            help="Shape of an input without the batch axis, e.g. image=3,224,224; may be repeated.",
        ),
    ] = None,
    size: Annotated[
        int, typer.Option(min=1, help="Size of dimensions that the model leaves open, without --shape.")
    ] = 1,
    wait: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the model.")] = 10.0,
    timeout: options.RequestTimeout = 60.0,
    show_histogram: Annotated[bool, typer.Option("--histogram", help="Show a histogram of the latencies.")] = False,
    as_json: options.Json = None,
    token: options.Token = None,
    tls: options.Secured = False,
    roots: options.Roots = None,
    key: options.Key = None,
    certificate: options.Certificate = None,
) -> None:
    """Measure a model under load.

    Keeps -c requests in flight, with random inputs of the model's types. Decoupled
    models need a grpc:// URL. Ctrl+C ends it early. The exit status is 1 if a request failed, or none was answered.
    """
    with exit_on_error():
        run = Bench(
            url=url,
            model=model,
            version=model_version,
            load=LoadOptions(
                concurrency, requests, DEFAULT_DURATION_S if duration is None and not requests else duration
            ),
            warmup_s=warmup,
            batch_size=batch_size,
            shapes=parse_shapes(shape or []),
            dynamic_size=size,
            init_timeout_s=wait,
            timeout_s=timeout,
            access_token=token,
            tls=options.trust(tls, roots, key, certificate),
        )
        outcome = asyncio.run(run.run(Console(stderr=True)))
        summary = Summary.of(outcome.measurement, outcome.inputs.rows)
        console = wide_console()
        console.print(Text(run.title(outcome)))
        console.print(summary.table())
        if show_histogram and summary.answered:
            console.print(histogram(outcome.measurement.latencies_s))
        if as_json:
            as_json.write_text(
                json.dumps({**run.settings(), **outcome.to_dict(), **summary.to_dict()}, indent=2) + "\n"
            )
    raise typer.Exit(bool(summary.failed) or not summary.answered)


@dataclass(frozen=True)
class Outcome:
    """The result of a load test.

    Attributes:
        measurement: The requests after the warm-up.
        inputs: The inputs of the requests.
        interrupted: True if the user ended the load early.
    """

    measurement: Measurement
    inputs: RandomInputs
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        """The inputs and the interruption, for JSON."""
        return {"inputs": self.inputs.describe(), "interrupted": self.interrupted}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A load test.

    Args:
        version: The model's version; None is the highest one.
        warmup_s: Seconds of the same load before the measurement.
        batch_size: Rows of a request; None is one.
        shapes: Input name to its dimensions without the batch axis.
        dynamic_size: The size of open dimensions (-1) of the other inputs.
        init_timeout_s: Seconds to wait for the model.
        timeout_s: Seconds to wait for a response.
    """

    url: str
    model: str
    version: str | None
    load: LoadOptions
    warmup_s: float
    batch_size: int | None
    shapes: dict[str, Shape]
    dynamic_size: int
    init_timeout_s: float
    timeout_s: float
    access_token: str | None
    tls: Tls | None

    async def run(self, console: Console) -> Outcome:
        """Put the load on the server. The first SIGINT or SIGTERM ends it early and keeps the measurements.

        Raises:
            PyTritonClientError: The model is not available. Requests that fail are counted instead.
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
                return await self._measure(unary_sender(client, batch=inputs.rows > 0), inputs, console)
        async with AsyncioDecoupledModelClient(
            self.url, self.model, self.version, model_config=config, ensure_model_is_ready=False, **arguments
        ) as streams:
            return await self._measure(stream_sender(streams, batch=inputs.rows > 0), inputs, console)

    def title(self, outcome: Outcome) -> str:
        """The load in one line."""
        inputs = ", ".join(f"{each['name']} {each['dtype']} {each['shape']}" for each in outcome.inputs.describe())
        early = " (interrupted)" if outcome.interrupted else ""
        return f"{self.model} at {self.url}, {self.load.concurrency} at a time{early}; {inputs or 'no inputs'}"

    def settings(self) -> dict[str, Any]:
        """The chosen options, for JSON."""
        chosen = {"url": self.url, "model": self.model, "model_version": self.version, "warmup_s": self.warmup_s}
        return {**chosen, **asdict(self.load)}

    def _inputs(self, config: TritonModelConfig) -> RandomInputs:
        return RandomInputs(config, self.batch_size, self.shapes, self.dynamic_size)

    async def _measure(self, send: Send, inputs: RandomInputs, console: Console) -> Outcome:
        arrays = [inputs.arrays() for _ in range(DIFFERENT_REQUESTS)]
        measurement, stop = Measurement(), asyncio.Event()
        with stopped_by_signals(stop), _progress(console) as progress:
            if self.warmup_s:
                warmup = replace(self.load, requests=None, duration_s=self.warmup_s)
                await _run_with_progress(progress, "warming up", send, arrays, warmup, Measurement(), stop)
            await _run_with_progress(progress, "measuring", send, arrays, self.load, measurement, stop)
        return Outcome(measurement, inputs, stop.is_set())


async def _run_with_progress(
    progress: Progress,
    what: str,
    send: Send,
    arrays: Sequence[Sequence[NDArray[Any]]],
    load: LoadOptions,
    measurement: Measurement,
    stop: asyncio.Event,
) -> None:
    """Run a load and show its progress."""
    task = progress.add_task(what, total=HUNDRED, rate="")
    running = asyncio.ensure_future(run_load(send, arrays, load, measurement, stop))
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        while not running.done():
            await asyncio.wait([running], timeout=PROGRESS_PERIOD_S)
            _update(progress, task, load, measurement, loop.time() - start)
        await running
    finally:
        running.cancel()
    if not stop.is_set():
        progress.update(task, completed=HUNDRED)


def _update(progress: Progress, task: TaskID, load: LoadOptions, measurement: Measurement, elapsed_s: float) -> None:
    by_time = elapsed_s / load.duration_s if load.duration_s else 0.0
    by_count = measurement.finished / load.requests if load.requests else 0.0
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


@dataclass(frozen=True)
class Percentiles:
    """Mean, least, greatest, and the 50th, 90th and 99th percentile, in milliseconds."""

    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: array[float]) -> Percentiles | None:
        """From durations in seconds; None without any."""
        if not seconds:
            return None
        values = np.asarray(seconds) * MS
        p50, p90, p99 = np.percentile(values, [50, 90, 99])
        return cls(float(values.mean()), float(values.min()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True)
class Summary:
    """The figures of a load test.

    Args:
        answered: Answered requests.
        failed: Failed requests.
        responses: Responses to the answered requests.
        rows: Rows of each request; 0 for a model without batching.
        elapsed_s: Seconds from the start of the first request to the end of the last one.
        latency_ms: From the start of a request to its last response; None if no request was answered.
        first_response_ms: From the start of a request to its first response, for decoupled models.
        errors: Failed requests by error text.
    """

    answered: int
    failed: int
    responses: int
    rows: int
    elapsed_s: float
    latency_ms: Percentiles | None
    first_response_ms: Percentiles | None
    errors: Mapping[str, int]

    @classmethod
    def of(cls, measurement: Measurement, rows: int) -> Summary:
        """From the measurements of requests with ``rows`` rows."""
        return cls(
            answered=len(measurement.latencies_s),
            failed=measurement.errors.total(),
            responses=measurement.responses,
            rows=rows,
            elapsed_s=measurement.elapsed_s,
            latency_ms=Percentiles.of(measurement.latencies_s),
            first_response_ms=Percentiles.of(measurement.first_s),
            errors=dict(measurement.errors.most_common()),
        )

    def per_second(self, count: int) -> float:
        """``count`` divided by the elapsed time."""
        return count / self.elapsed_s if self.elapsed_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        rates = {
            "requests_per_s": self.per_second(self.answered),
            "rows_per_s": self.per_second(self.answered * max(1, self.rows)),
            "responses_per_s": self.per_second(self.responses),
        }
        return {**asdict(self), **rates}

    def table(self) -> Table:
        """The figures for a terminal."""
        table = Table(show_header=False, box=box.SIMPLE)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("requests answered", f"{self.answered:,}")
        table.add_row("requests failed", f"{self.failed:,}", style="red" if self.failed else "")
        table.add_row("time", f"{self.elapsed_s:.2f} s")
        table.add_row("requests per second", f"{self.per_second(self.answered):,.1f}", style="bold")
        if self.rows > 1:
            table.add_row("rows per second", f"{self.per_second(self.answered * self.rows):,.1f}")
        if self.first_response_ms:
            table.add_row("responses per second", f"{self.per_second(self.responses):,.1f}")
        self._add(table, "latency", self.latency_ms)
        self._add(table, "first response", self.first_response_ms)
        for text, count in self.errors.items():
            table.add_section()
            table.add_row(Text(text), f"{count:,}", style="red")
        return table

    def _add(self, table: Table, what: str, figures: Percentiles | None) -> None:
        if figures:
            table.add_section()
            for name, value in asdict(figures).items():
                table.add_row(f"{what}, {name}", f"{value:,.3f} ms")


def histogram(latencies_s: array[float]) -> Table:
    """A histogram for a terminal: the range, the count and a bar of each bin.

    Args:
        latencies_s: Seconds of each request; at least one.
    """
    milliseconds = np.asarray(latencies_s) * MS
    low, high = float(milliseconds.min()), float(milliseconds.max())
    if low == high:
        edges = np.array([low, high])
    else:
        spaced = np.geomspace if high > LOGARITHMIC_RATIO * low > 0 else np.linspace
        edges = spaced(low, high, BINS + 1)
    edges[0], edges[-1] = low, high  # geomspace may round them inwards
    counts, _ = np.histogram(milliseconds, edges)
    table = Table(box=box.SIMPLE)
    table.add_column("latency, ms", justify="right")
    table.add_column("requests", justify="right")
    table.add_column("")
    for start, end, count in zip(edges, edges[1:], counts, strict=False):
        bar = "█" * round(BAR_COLUMNS * count / counts.max()) or ("▏" if count else "")
        table.add_row(f"{start:,.3f} - {end:,.3f}", f"{count:,}", bar)
    return table
