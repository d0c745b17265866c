"""``pytriton replay``: sends recorded requests again, and compares answers and latencies."""

from __future__ import annotations

import asyncio
import json
import math
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from pytriton.cli import options
from pytriton.cli.bench import Percentiles
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.cli.load import ERROR_LENGTH, count_error, stopped_by_signals
from pytriton.cli.terminal import wide_console
from pytriton.client.aio import open_async_transport
from pytriton.client.auth import Tls, TritonUrl, create_auth_headers
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientError, PyTritonClientValueError
from pytriton.client.sync import check_streams
from pytriton.client.tensors import InputTensor, OutputRequest
from pytriton.model_config.dtypes import triton_name
from pytriton.recording import RecordedFiles, RecordedRequest

__all__ = ["Difference", "Replay", "Report", "Tolerance", "differences", "replay", "speed_of"]

Outputs = Mapping[str, NDArray[Any] | None]


def replay(
    files: Annotated[list[str], typer.Argument(metavar="FILE.ptr... URL", help="Recordings, and the server.")],
    model: Annotated[str | None, typer.Option(help="Name of the model.", show_default="the recorded one")] = None,
    model_version: options.ModelVersion = None,
    speed: Annotated[
        str, typer.Option(help="How much faster than recorded; max sends as fast as connections allow.")
    ] = "1",
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, help="Requests at a time.")] = 64,
    rtol: Annotated[float, typer.Option(min=0, help="Relative tolerance of floating point numbers.")] = 0.0,
    atol: Annotated[float, typer.Option(min=0, help="Absolute tolerance of floating point numbers.")] = 0.0,
    show: Annotated[int, typer.Option(min=0, help="How many differences to show.")] = 10,
    timeout: options.RequestTimeout = 60.0,
    as_json: options.Json = None,
    token: options.Token = None,
    tls: options.Secured = False,
    roots: options.Roots = None,
    key: options.Key = None,
    certificate: options.Certificate = None,
) -> None:
    """Send recorded requests to a server, and compare answers and latencies with the recorded ones.

    FILE.ptr is read with its older files. Models that stream need a grpc:// URL. Ctrl+C ends it early. The exit status
    is 1 if an answer differs, a request fails that did not, or none was sent.
    """
    with exit_on_error():
        *paths, url = files
        if not paths:
            raise TargetError("give files and then the URL of the server, as in: day.ptr localhost")
        run = Replay(
            url=url,
            model=model,
            version=model_version,
            speed=speed_of(speed),
            connections=connections,
            tolerance=Tolerance(rtol, atol),
            shown=show,
            timeout_s=timeout,
            access_token=token,
            tls=options.trust(tls, roots, key, certificate),
        )
        with RecordedFiles(*paths) as recorded:
            for note in recorded.notes:
                typer.echo(f"pytriton: {note}", err=True)
            report = asyncio.run(run.run(recorded))
        wide_console().print(report.table())
        for each in report.first:
            typer.echo(f"request {each.number}{each.id and f' (id {each.id})'}, {each.output or 'answer'}: {each.text}")
        if as_json:
            as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    raise typer.Exit(not report.is_same)


def speed_of(text: str) -> float:
    """The factor of an option; infinite for ``max``."""
    try:
        factor = math.inf if text == "max" else float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0:
        raise TargetError(f"--speed is {text!r}; give a number above 0, or max")
    return factor


class Tolerance(NamedTuple):
    """How far numbers may be apart: ``absolute + relative * |recorded|``; with two zeros, not at all."""

    relative: float = 0.0
    absolute: float = 0.0


class Difference(NamedTuple):
    """An answer that is another one than the recorded one.

    Attributes:
        number: Of the request in the recording, from 0 on.
        id: Of the request; may be empty.
        output: Empty if it is not one output that differs.
        text: What differs.
    """

    number: int
    id: str
    output: str
    text: str


@dataclass
class Report:
    """What a replay has come to.

    Attributes:
        requests: That were sent.
        answered: Requests that were answered without an error.
        not_sent: Requests that lack an input, as the recording leaves it out.
        not_compared: Answers to requests that were cancelled when they were recorded.
        different: Requests with a difference.
        by_output: Differences by output; those of a whole answer under an empty name.
        first: The first differences.
        errors: Requests that fail now and did not, by error text.
        recorded_s: From the arrival at the worker to its last response, of each request that was answered both times.
        latencies_s: The same, from the client: with the network and the server's queue.
        late_s: How much later than planned each request was sent, as all connections were busy.
        elapsed_s: From the first request to the last response.
        interrupted: Whether a signal ended it early.
    """

    requests: int = 0
    answered: int = 0
    not_sent: int = 0
    not_compared: int = 0
    different: int = 0
    by_output: Counter[str] = field(default_factory=Counter)
    first: list[Difference] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    recorded_s: array[float] = field(default_factory=lambda: array("d"))
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    late_s: array[float] = field(default_factory=lambda: array("d"))
    elapsed_s: float = 0.0
    interrupted: bool = False

    @property
    def is_same(self) -> bool:
        """Whether requests were sent, and the answers are the recorded ones."""
        return bool(self.requests) and not self.different and not self.errors

    def percentiles(self) -> dict[str, Percentiles | None]:
        """Of the times, in milliseconds, by what they are."""
        times = {"recorded": self.recorded_s, "latency": self.latencies_s, "late": self.late_s}
        return {name: Percentiles.of(seconds) for name, seconds in times.items()}

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON; latencies in milliseconds."""
        return {
            **{name: value for name, value in vars(self).items() if not isinstance(value, array)},
            "first": [each._asdict() for each in self.first],
            "requests_per_s": self.requests / self.elapsed_s if self.elapsed_s else 0.0,
            **{f"{name}_ms": found and asdict(found) for name, found in self.percentiles().items()},
        }

    def table(self) -> Table:
        """The figures for a terminal."""
        table = Table(show_header=False, box=box.SIMPLE)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("requests sent", f"{self.requests:,}")
        table.add_row("requests that differ", f"{self.different:,}", style="red" if self.different else "")
        table.add_row("requests that fail now", f"{self.errors.total():,}", style="red" if self.errors else "")
        for name, count in (("not compared, as cancelled", self.not_compared), ("not sent", self.not_sent)):
            if count:
                table.add_row(name, f"{count:,}")
        table.add_row("time", f"{self.elapsed_s:.2f} s")
        names = {"recorded": "recorded in the worker", "latency": "now at the client", "late": "late"}
        for name, found in self.percentiles().items():
            if found:
                text = f"{found.p50:,.3f} / {found.p90:,.3f} / {found.p99:,.3f} ms"
                table.add_row(f"{names[name]}, p50 / p90 / p99", text)
        for text, count in [*self.by_output.most_common(), *self.errors.most_common()]:
            table.add_row(Text(text or "whole answers"), f"{count:,}", style="red")
        return table


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Sends the requests of a recording to a server.

    Args:
        model: Name of the model; None is the recorded one.
        version: The model's version; None is the highest.
        speed: How much faster than recorded the requests are sent; infinite sends each as soon as a connection is free.
        connections: Most requests at a time.
        shown: How many differences the report has.
        timeout_s: Seconds to wait for a response.
    """

    url: str
    model: str | None
    version: str | None
    speed: float
    connections: int
    tolerance: Tolerance
    shown: int
    timeout_s: float
    access_token: str | None
    tls: Tls | None

    async def run(self, files: RecordedFiles) -> Report:
        """Send the requests. After the first SIGINT or SIGTERM, no request is sent any more.

        Raises:
            RecordingError: A record cannot be read.
            PyTritonClientValueError: The URL cannot be understood, or is not of gRPC for a model that streams.
            PyTritonClientConnectionError: The server cannot be reached.
        """
        run, stop = _Run(self, files), asyncio.Event()
        stopping = asyncio.ensure_future(stop.wait())
        sending = [asyncio.ensure_future(run.send_all(stopping)) for _ in range(self.connections)]
        try:
            with stopped_by_signals(stop):
                await asyncio.gather(*sending)
        finally:
            for task in (*sending, stopping):
                task.cancel()
            await asyncio.gather(*sending, stopping, return_exceptions=True)
            await run.transport.close()
        run.report.interrupted = stop.is_set()
        run.report.first.sort()
        return run.report


class _Run:
    """One replay; several tasks send what they take from the same requests."""

    def __init__(self, replay: Replay, files: RecordedFiles) -> None:
        url = TritonUrl.from_url(replay.url)
        headers = {} if replay.access_token is None else create_auth_headers(replay.access_token, url.scheme)
        self.transport = open_async_transport(url, headers, replay.tls)
        self.report = Report()
        self._replay, self._scheme = replay, url.scheme
        self._requests = enumerate(files)
        self._begin = time.perf_counter()
        self._first_arrival = math.nan
        self._turns: WeakValueDictionary[int | str, asyncio.Lock] = WeakValueDictionary()  # of sequences

    async def send_all(self, stopping: asyncio.Future[Any]) -> None:
        for number, request in self._requests:
            if request.lacks_inputs:
                self.report.not_sent += 1
                continue
            turn: AbstractAsyncContextManager[Any] = nullcontext()
            if request.sequence is not None:  # before the wait, so that its requests keep their order
                turn = self._turns.setdefault(request.sequence[0], asyncio.Lock())
            async with turn:
                await self._wait(request.arrival, stopping)
                if stopping.done():
                    return
                await self._send(number, request)

    async def _wait(self, arrival: float, stopping: asyncio.Future[Any]) -> None:
        """Wait until a request is due, or for the end."""
        if math.isnan(self._first_arrival):
            self._first_arrival = arrival
        if self._replay.speed < math.inf:
            due = self._begin + (arrival - self._first_arrival) / self._replay.speed
            if (delay := due - time.perf_counter()) > 0:
                await asyncio.wait([stopping], timeout=delay)
            self.report.late_s.append(max(0.0, time.perf_counter() - due))

    async def _send(self, number: int, request: RecordedRequest) -> None:
        report = self.report
        report.requests += 1
        responses: list[Outputs] = []
        failure: Exception | None = None
        start = time.perf_counter()
        try:
            responses = await self._responses(request)
        except PyTritonClientValueError:
            raise
        except (PyTritonClientError, TypeError, ValueError) as error:  # the protocol cannot carry what was recorded
            failure = error
        end = time.perf_counter()
        report.elapsed_s = end - self._begin
        is_lost = isinstance(failure, PyTritonClientConnectionError)
        if failure is None:
            report.answered += 1
            if not request.error:
                report.latencies_s.append(end - start)
                report.recorded_s.append(request.duration_s)
        elif is_lost and not report.answered:
            raise failure
        elif is_lost or not request.error:
            count_error(report.errors, failure)
            return
        if request.is_cancelled:
            report.not_compared += 1
        elif failure is None:
            self._compare(number, request, responses)

    def _compare(self, number: int, request: RecordedRequest, responses: Sequence[Outputs]) -> None:
        found = [*differences(request, responses, self._replay.tolerance)]
        self.report.different += bool(found)
        self.report.by_output.update(output for output, _ in found)
        room = self._replay.shown - len(self.report.first)
        for output, text in found[: max(0, room)]:
            self.report.first.append(Difference(number, *map(_printable, (request.id, output, text))))

    async def _responses(self, request: RecordedRequest) -> list[Outputs]:
        names = dict.fromkeys(name for response in request.responses for name in response)
        parameters = dict(request.parameters)
        if request.sequence is not None:
            parameters |= dict(zip(("sequence_id", "sequence_start", "sequence_end"), request.sequence, strict=True))
        arguments = {
            "model_name": self._replay.model or request.model,
            "model_version": self._replay.version or "",
            "inputs": [InputTensor(name, triton_name(x.dtype), x.shape, x) for name, x in request.inputs.items()],
            "outputs": [OutputRequest(name) for name in names],
            "parameters": parameters,
            "request_id": request.id,
        }
        if not request.is_streamed:
            answers = [await self.transport.call(Call("infer", self._replay.timeout_s, arguments))]
        else:
            check_streams(self._scheme)
            async with aclosing(self.transport.stream(Call("stream_infer", self._replay.timeout_s, arguments))) as each:
                answers = [answer async for answer in each]
        return [{name: answer.as_numpy(name) for name in names} for answer in answers]


def _printable(text: str) -> str:
    """A text of clients, without what would control a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def differences(
    request: RecordedRequest, responses: Sequence[Outputs], tolerance: Tolerance
) -> Iterator[tuple[str, str]]:
    """How an answer differs from the recorded one: names of outputs, and what differs.

    Args:
        responses: Of now; an output may be None, which is as if there were none.
    """
    if request.error:
        yield "", f"it is answered, and failed before: {request.error:.{ERROR_LENGTH}}"
        return
    if len(responses) != len(request.responses):
        yield "", f"{len(responses)} responses in place of {len(request.responses)}"
        return
    for index, (before, now) in enumerate(zip(request.responses, responses, strict=True)):
        for name in before:
            found = now.get(name)
            text = "it is missing" if found is None else _difference(before[name], found, tolerance)
            if text:
                yield name, f"response {index}: {text}" if len(responses) > 1 else text


def _difference(before: NDArray[Any], now: NDArray[Any], tolerance: Tolerance) -> str:
    """What differs; empty if nothing does."""
    if before.dtype != now.dtype or before.shape != now.shape:
        return f"{now.dtype} of shape {now.shape} in place of {before.dtype} of shape {before.shape}"
    same, apart = np.asarray(now == before), ""
    if before.dtype.kind == "f":
        wide, wide_now = before.astype(np.float64), now.astype(np.float64)
        with np.errstate(all="ignore"):  # of infinite and huge numbers
            same = np.isclose(wide_now, wide, tolerance.relative, tolerance.absolute, equal_nan=True)
            most = np.fmax.reduce(np.abs(wide_now - wide), axis=None, initial=0.0)  # NaN does not count
        apart = f", {most:.3g} apart at most"
    if same.all():
        return ""
    places = np.argwhere(~same)
    place = tuple(int(each) for each in places[0])
    return (
        f"{now[place]!s:.60} in place of {before[place]!s:.60} at {list(place)}{apart}; "
        f"{len(places):,} of {before.size:,} elements"
    )
