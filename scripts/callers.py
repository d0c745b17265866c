"""Calls whose every answer is checked, for as long as they run, and the processes that make them.

A call comes to one of these:

``right``    The answer is right.
``wrong``    It is not.
``refused``  The server said that it does not serve the model, or the connection was refused.
``closed``   The connection was closed before any byte of an answer.
``slow``     The client took longer than its timeouts.
``lost``     All else: an answer that was cut off, another error, silence.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from bad_requests import make_bad_requests
from connections import PROTOCOLS, CutError, HttpConnection
from numpy.typing import NDArray
from payloads import HOST, MODEL, NESTED, STEPS, STREAM, LoadError, Workload, check_outputs
from processes import end_with_parent

from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["Caller", "Calls", "Failure", "Found", "judge"]

IN_FLIGHT = 8
PAUSE_S = 0.02  # after a failure
REPORT_S = 1.0
SIZES = [16, 4 << 10, 64 << 10]  # floats in a row of those that clients send
RAW_SIZES = [16, 16, 64 << 10, 16, 16, 4 << 20]
RESPONSES = 20  # to each request, as it has to be the same for those that the server merges
STOPPED_SHARE = 0.2
GRACE_S = 1.0  # besides the timeouts
PREPARATION_S = 1.0  # after which a client of ours has sent the first byte of a request
REFUSALS = ("unknown model", "no available versions", "is not ready", "not found", "erver is stopping")
REFUSALS += ("ConnectionRefusedError", "Connection refused", "Failed to connect", "failed to connect")
REFUSALS += ("was not ready within", "did not answer is_", "did not answer get_model_config", "no time was left")
CLOSURES = ("Socket closed", "Connection reset", "Broken pipe", "closed the connection", "Stream removed", "GOAWAY")
ERRORS = (OSError, LoadError, PyTritonClientError)
Floats = NDArray[np.float32]


class Failure(NamedTuple):
    """A call that was not answered right; moments are :func:`time.monotonic` seconds."""

    began: float
    ended: float
    what: str
    detail: str
    caller: str = ""

    @property
    def sent(self) -> float:
        """When its first byte was sent, at the latest."""
        return self.began + (0.0 if self.caller.startswith("raw") else PREPARATION_S)


def judge(error: BaseException) -> tuple[str, str]:
    """What a call came to that raised an exception, and its causes in words."""
    seen: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        seen.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "; ".join(seen)
    what = "lost"
    if not isinstance(error, CutError):
        if any(refusal in text for refusal in REFUSALS):
            what = "refused"
        elif any(closure in text for closure in CLOSURES):
            what = "closed"
    return what, text[:500]


class Calls:
    """Counts calls by what they came to.

    Args:
        timeout_s: What a client waits for its model and, after that, for each answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self._slow_s, self._lock = 2 * timeout_s + GRACE_S, threading.Lock()
        self._counts: Counter[str] = Counter()
        self._failures: list[Failure] = []

    def count(self, what: str, moments: list[float], detail: str = "") -> None:
        """Count a call that ends now, and that began, and whose responses came, at these moments."""
        now = time.monotonic()
        waited_s = max(after - before for before, after in zip(moments, (*moments[1:], now), strict=True))
        if waited_s > self._slow_s:
            what, detail = "slow", f"{waited_s:.1f} s, {what} {detail}"
        with self._lock:
            self._counts[what] += 1
            if not what.startswith("right"):
                self._failures.append(Failure(moments[0], now, what, detail))

    def take(self) -> tuple[Counter[str], list[Failure]]:
        """The calls since the last take."""
        with self._lock:
            found = self._counts, self._failures
            self._counts, self._failures = Counter(), []
        return found


Call = Callable[[list[float]], str]  # gets when it began, may add when responses came, and returns what it came to


def make_inputs() -> Floats:
    """A batch that no other call has."""
    return np.full((random.randint(1, 4), random.choice(SIZES)), random.random(), np.float32)


def verdict(x: Floats, answer: Floats, factor: int = 2) -> str:
    return "right" if np.array_equal(answer, factor * x) else f"wrong: {answer.ravel()[:4]} of shape {answer.shape}"


@contextmanager
def blocking(protocol: str, port: int, timeout_s: float, model: str = MODEL, factor: int = 2) -> Iterator[Call]:
    """Calls with one synchronous client of a model that multiplies with a factor."""

    def call(moments: list[float]) -> str:
        x = make_inputs()
        return verdict(x, client.infer_batch(x)["OUTPUT"], factor)

    url = f"{protocol}://{HOST}:{port}"
    with ModelClient(url, model, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        yield call


@contextmanager
def streams(protocol: str, port: int, timeout_s: float, stopped_share: float = 0) -> Iterator[Call]:
    """One stream of responses after the other; some are stopped after the first response."""

    def call(moments: list[float]) -> str:
        x, stop = make_inputs()[:1], random.random() < stopped_share
        try:
            with client.infer_batch(INPUT=x, COUNT=np.array([[RESPONSES]], np.int32)) as responses:
                for response in responses:
                    moments.append(time.monotonic())
                    if (found := verdict(x, response["OUTPUT"])) != "right":
                        return found
                    if stop:
                        return "right: stopped"
        except PyTritonClientError as error:
            if len(moments) > 1:
                raise CutError(f"after {len(moments) - 1} responses") from error
            raise
        return "right" if len(moments) == 1 + RESPONSES else f"wrong: {len(moments) - 1} of {RESPONSES} responses"

    url = f"{protocol}://{HOST}:{port}"
    with DecoupledModelClient(url, STREAM, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        yield call


@contextmanager
def raw(protocol: str, port: int, timeout_s: float) -> Iterator[Call]:
    """Requests of 64 B to 16 MiB over a connection that is kept, with nothing that would repeat a request."""
    _, encode, decode = PROTOCOLS[protocol]
    workloads = {size: Workload(size) for size in RAW_SIZES}
    requests = {size: encode(port, each, 1) for size, each in workloads.items()}
    expected = {size: each.outputs(1) for size, each in workloads.items()}
    rotation, kept = cycle(RAW_SIZES), dict[int, HttpConnection]()

    def call(moments: list[float]) -> str:
        size = next(rotation)
        try:
            if size not in kept:
                kept[size] = HttpConnection(port, [requests[size]], timeout_s)
            check_outputs(decode(*kept[size].fetch()), expected[size])
        except ERRORS:
            close(size)
            raise
        return "right"

    def close(*sizes: int) -> None:
        for each in sizes:
            if each in kept:
                kept.pop(each).close()

    yield call
    close(*kept)


@contextmanager
def bad(protocol: str, port: int, timeout_s: float) -> Iterator[Call]:
    """One bad request after the other; each counts as ``right`` if it fails as it has to."""
    requests = cycle(make_bad_requests(f"{protocol}://{HOST}:{port}", timeout_s).items())

    def call(moments: list[float]) -> str:
        name, send = next(requests)
        complaint = send()
        time.sleep(PAUSE_S)
        return f"wrong: {name}: {complaint}" if complaint else f"right: {name}"

    yield call


async def call_at_once(calls: Calls, protocol: str, port: int, timeout_s: float) -> None:
    """Call with one asynchronous client, several times at once, for ever."""

    async def repeat() -> None:
        while True:
            x, moments = make_inputs(), [time.monotonic()]
            try:
                calls.count(verdict(x, (await client.infer_batch(x))["OUTPUT"]), moments)
            except PyTritonClientError as error:
                what, detail = judge(error)
                calls.count(what, moments, detail)
                await asyncio.sleep(PAUSE_S)

    url = f"{protocol}://{HOST}:{port}"
    async with AsyncioModelClient(url, MODEL, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        await asyncio.gather(*[repeat() for _ in range(IN_FLIGHT)])


KINDS = {"blocking": blocking, "streams": streams, "stopped": partial(streams, stopped_share=STOPPED_SHARE)}
KINDS |= {"raw": raw, "bad": bad}
KINDS |= {"nested": partial(blocking, model=NESTED), "pipeline": partial(blocking, model=STEPS, factor=4)}


def run(kind: str, protocol: str, port: int, timeout_s: float, parent: Connection[Any, Any]) -> None:
    """Make calls of a kind, and send the parent what they came to each second, until it sends something or ends."""
    end_with_parent()
    calls = Calls(timeout_s)

    def report() -> None:
        try:
            while not parent.poll(REPORT_S):
                parent.send(calls.take())
            parent.send(calls.take())
        finally:  # or nobody reads the reports any more
            os._exit(0)

    threading.Thread(target=report, daemon=True).start()
    if kind == "asyncio":
        asyncio.run(call_at_once(calls, protocol, port, timeout_s))
    with KINDS[kind](protocol, port, timeout_s) as call:
        while True:
            moments = [time.monotonic()]
            try:
                calls.count(call(moments), moments)
            except ERRORS as error:
                what, detail = judge(error)
                calls.count(what, moments, detail)
                time.sleep(PAUSE_S)


@dataclass
class Found:
    """What callers find: the number of their calls by what they came to, and those that were not answered right."""

    calls: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, calls: Counter[str], failures: list[Failure], caller: str) -> None:
        """Add what a caller of this title has reported."""
        with self._lock:
            self.calls.update(calls)
            self.failures += [each._replace(caller=caller) for each in failures]


class Caller:
    """A process that calls until it is ended.

    Args:
        kind: Of the calls.
        protocol: ``http`` or ``grpc``.
        port: Of the server.
        timeout_s: What a client waits for its model and, after that, for each answer.
        found: Gets what it reports.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, kind: str, protocol: str, port: int, timeout_s: float, found: Found) -> None:
        self.title = f"{kind} {protocol}"
        self._arguments, self._found = (kind, protocol, port, timeout_s, found), found
        self._pipe, theirs = (context := get_context("spawn")).Pipe()
        self._process = context.Process(target=run, args=(kind, protocol, port, timeout_s, theirs))
        self._process.start()
        theirs.close()
        assert self._process.pid
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self) -> bool:
        """End the process; returns whether it had not ended by itself."""
        alive = self._process.is_alive()
        with suppress(OSError):
            self._pipe.send("end")
        self._process.join(GRACE_S)
        self._kill()
        return alive

    def restart(self) -> Caller:
        """Kill the process; returns another caller of its kind."""
        self._kill()
        return Caller(*self._arguments)

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._reader.join()
        self._pipe.close()

    def _read(self) -> None:
        with suppress(EOFError, OSError):  # also in the middle of a report, at a kill
            while True:
                self._found.add(*self._pipe.recv(), self.title)
