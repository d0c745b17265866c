"""Calls whose every answer is checked, for as long as they run, and the processes that make them.

Each process (``load.py checked``) prints one line of JSON a second: the calls since the line before, by outcome.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import numpy as np
from numpy.typing import NDArray
from payloads import ERRANT, HOST, MODEL, STREAM
from processes import end_with_parent
from tritonclient.grpc import service_pb2

from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import (
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
)

__all__ = ["Caller", "Calls", "Found", "run"]

IN_FLIGHT = 8
PAUSE_S = 0.02
REPORT_S = 1.0
SIZES = [16, 4 << 10, 64 << 10]
RESPONSES = 20  # to each request, as it has to be the same for those that the server merges
STOPPED_SHARE = 0.2
_PROGRAM = Path(__file__).with_name("load.py")
_GRACE_S = 1.0  # besides the timeouts
_GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
Floats = NDArray[np.float32]
GOOD, RAISES, SLEEPS_S = 0.0, -1.0, 0.3  # inputs of the model that errs
SHORT_S = 0.1
BESIDE = 4  # requests of each sort at once

_TENSOR = {"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
_TENSORS: dict[str, list[dict[str, Any]]] = {  # which no model takes
    "another dtype": [{**_TENSOR, "datatype": "FP64"}],
    "another rank": [{**_TENSOR, "shape": [1, 2, 1]}],
    "another name": [{**_TENSOR, "name": "OTHER"}],
    "one input too many": [_TENSOR, {**_TENSOR, "name": "OTHER"}],
    "no input": [],
    "too many rows": [{**_TENSOR, "shape": [1000, 1], "data": [1.0] * 1000}],
    "too few elements": [{**_TENSOR, "shape": [1, 3]}],
    "a negative shape": [{**_TENSOR, "shape": [1, -2]}],
}


class Calls:
    """Counts calls by what they came to: ``right``, ``wrong: ...``, or an error's class.

    Args:
        timeout_s: What a client waits for its model and, after that, for each answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._counts: Counter[str] = Counter()
        self._longest = (0.0, 0.0)
        self._lock = threading.Lock()

    def count(self, what: str, *moments: float) -> None:
        """Count a call that ends now.

        Args:
            what: It came to.
            moments: When it began and each of its responses came, in :func:`time.monotonic` seconds.
        """
        waits = zip(moments, (*moments[1:], time.monotonic()), strict=True)
        with self._lock:
            self._counts[what] += 1
            self._longest = max(self._longest, *waits, key=lambda wait: wait[1] - wait[0])

    def report(self) -> None:
        """Print what was counted since the last report, and when the longest wait for a response began and ended."""
        with self._lock:
            print(json.dumps({"counts": self._counts, "longest": self._longest}), flush=True)
            self._counts.clear()
            self._longest = (0.0, 0.0)


def make_inputs() -> Floats:
    """A batch that no other call has."""
    return np.full((random.randint(1, 4), random.choice(SIZES)), random.random(), np.float32)


def verdict(x: Floats, answer: Floats) -> str:
    return "right" if np.array_equal(answer, 2 * x) else f"wrong: {answer.ravel()[:4]} of shape {answer.shape}"


def call(server: str, calls: Calls) -> None:
    """Call with one synchronous client, for ever."""
    timeout_s = calls.timeout_s
    with ModelClient(server, MODEL, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        while True:
            x, began = make_inputs(), time.monotonic()
            try:
                calls.count(verdict(x, client.infer_batch(x)["OUTPUT"]), began)
            except PyTritonClientError as error:
                calls.count(type(error).__name__, began)
                time.sleep(PAUSE_S)


async def call_at_once(server: str, calls: Calls) -> None:
    """Call with one asynchronous client, several times at once, for ever."""

    async def repeat(client: AsyncioModelClient) -> None:
        while True:
            x, began = make_inputs(), time.monotonic()
            try:
                calls.count(verdict(x, (await client.infer_batch(x))["OUTPUT"]), began)
            except PyTritonClientError as error:
                calls.count(type(error).__name__, began)
                await asyncio.sleep(PAUSE_S)

    timeout_s = calls.timeout_s
    async with AsyncioModelClient(server, MODEL, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        await asyncio.gather(*[repeat(client) for _ in range(IN_FLIGHT)])


def call_streams(server: str, calls: Calls, stopped_share: float) -> None:
    """Receive one stream of responses after the other, for ever; some are stopped after the first response."""
    timeout_s = calls.timeout_s
    with DecoupledModelClient(server, STREAM, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        while True:
            moments = [time.monotonic()]
            try:
                calls.count(_receive(client, moments, random.random() < stopped_share), *moments)
            except PyTritonClientError as error:
                calls.count(type(error).__name__, *moments)
                time.sleep(PAUSE_S)


def _receive(client: DecoupledModelClient, moments: list[float], stop: bool) -> str:
    x, received = make_inputs()[:1], 0
    with client.infer_batch(INPUT=x, COUNT=np.array([[RESPONSES]], np.int32)) as responses:
        for response in responses:
            moments.append(time.monotonic())
            received += 1
            if (found := verdict(x, response["OUTPUT"])) != "right":
                return found
            if stop:
                return "right: stopped"
    return "right" if received == RESPONSES else f"wrong: {received} of {RESPONSES} responses"


def call_badly(server: str, calls: Calls) -> None:
    """Send one bad request after the other, for ever; each counts as ``right`` if it fails as it has to."""
    bad_requests = make_bad_requests(server, calls.timeout_s)
    while True:
        for name, send in bad_requests.items():
            began = time.monotonic()
            complaint = send()
            calls.count(f"wrong: {name}: {complaint}" if complaint else f"right: {name}", began)
            time.sleep(PAUSE_S)


KINDS: dict[str, Callable[[str, Calls], None]] = {
    "blocking": call,
    "asyncio": lambda server, calls: asyncio.run(call_at_once(server, calls)),
    "streams": partial(call_streams, stopped_share=0),
    "stopped": partial(call_streams, stopped_share=STOPPED_SHARE),
    "bad": call_badly,
}


def run(kind: str, protocol: str, port: int, timeout_s: float) -> None:
    """Make calls of a kind until SIGTERM comes."""
    calls = Calls(timeout_s)
    # A file descriptor tells of SIGTERM, whatever the main thread waits for. sigtimedwait would not do: after a SIGSTOP
    # that is longer than its timeout, CPython's reports a signal that never came.
    ended, ends = os.pipe()
    os.set_blocking(ends, False)
    signal.set_wakeup_fd(ends)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def report() -> None:
        try:
            while not select.select([ended], [], [], REPORT_S)[0]:
                calls.report()
            calls.report()
        finally:  # or nobody reads the reports any more
            os._exit(0)

    threading.Thread(target=report, daemon=True).start()
    KINDS[kind](f"{protocol}://{HOST}:{port}", calls)


def make_bad_requests(server: str, timeout_s: float) -> dict[str, Callable[[], str]]:
    """Functions that send a request each and return what is wrong with its outcome, nothing if it was as it has to be.

    Args:
        server: Its URL, of HTTP or gRPC.
        timeout_s: For whatever does not have to time out.
    """
    where = urlsplit(server)
    send = partial(_send_http if where.scheme == "http" else _send_grpc, where.netloc, timeout_s)
    found: dict[str, Callable[[], str]] = {name: partial(send, MODEL, each) for name, each in _TENSORS.items()}
    found["an unknown model"] = partial(send, "unknown", [_TENSOR])
    found["no message"] = partial(send, MODEL, None)
    if where.scheme == "http":
        found["half a request"] = partial(_send_half, where.netloc, timeout_s)
    found["a client of an unknown model"] = partial(_expect, _Missing, server, "unknown", GOOD, timeout_s, SHORT_S)
    found["an exception"] = partial(_expect, PyTritonClientInferenceServerError, server, ERRANT, RAISES, timeout_s)
    found["a timeout"] = partial(_expect, PyTritonClientTimeoutError, server, ERRANT, SLEEPS_S, SHORT_S, timeout_s)
    found["several at once"] = lambda: asyncio.run(_send_several(server, timeout_s))
    return found


_Missing = (PyTritonClientModelUnavailableError, PyTritonClientTimeoutError)


def _send_http(place: str, timeout_s: float, model: str, inputs: list[dict[str, Any]] | None) -> str:
    body = b'{"inputs":[' if inputs is None else json.dumps({"inputs": inputs}).encode()
    connection = http.client.HTTPConnection(place, timeout=timeout_s)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", body)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    with suppress(ValueError):
        if 400 <= answer.status <= 500 and json.loads(text)["error"]:  # Triton says 500 for some of them
            return ""
    return f"{answer.status} {text[:200]!r}"


def _send_half(place: str, timeout_s: float) -> str:
    """Go away in the middle of a request."""
    connection = http.client.HTTPConnection(place, timeout=timeout_s)
    try:
        connection.putrequest("POST", f"/v2/models/{MODEL}/infer")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b'{"inputs":[')
    finally:
        connection.close()
    return ""


def _send_grpc(place: str, timeout_s: float, model: str, inputs: list[dict[str, Any]] | None) -> str:
    message = b"\xff" * 16
    if inputs is not None:
        tensors = [{name: value for name, value in each.items() if name != "data"} for each in inputs]
        request = service_pb2.ModelInferRequest(model_name=model, inputs=tensors)
        request.raw_input_contents.extend(np.array(each["data"], np.float32).tobytes() for each in inputs)
        message = request.SerializeToString()
    with grpc.insecure_channel(place) as channel:
        try:
            answer = channel.unary_unary(_GRPC_PATH)(message, timeout=timeout_s)
        except grpc.RpcError as error:
            lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            return f"{error.code()} {error.details()}" if error.code() in lost else ""
    return f"answered {answer[:200]!r}"


def _expect(
    expected: type[Exception] | tuple[type[Exception], ...],
    server: str,
    model: str,
    value: float,
    inference_timeout_s: float,
    init_timeout_s: float | None = None,
) -> str:
    """Call a model with a client of its own."""
    init_timeout_s = init_timeout_s or inference_timeout_s
    with ModelClient(server, model, init_timeout_s=init_timeout_s, inference_timeout_s=inference_timeout_s) as client:
        try:
            answer = client.infer_batch(np.full((1, 4), value, np.float32))
        except expected as error:
            return f"{error!r}" if model == ERRANT and value == RAISES and "asked to fail" not in str(error) else ""
        except PyTritonClientError as error:
            return f"{error!r}"
    return f"answered {answer}"


async def _send_several(server: str, timeout_s: float) -> str:
    """Requests that the server merges: good ones are answered, bad ones fail, and some are cancelled."""
    async with AsyncioModelClient(server, ERRANT, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        values = [GOOD, RAISES, SLEEPS_S] * BESIDE
        tasks = [asyncio.create_task(client.infer_batch(np.full((1, 4), value, np.float32))) for value in values]
        await asyncio.sleep(SHORT_S)
        for task, value in zip(tasks, values, strict=True):
            if value == SLEEPS_S:
                task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for value, outcome in zip(values, found, strict=True):
        if value == GOOD and not (isinstance(outcome, dict) and np.array_equal(outcome["OUTPUT"], np.zeros((1, 4)))):
            return f"good one: {outcome!r}"
        if value == RAISES and "asked to fail" not in str(outcome):
            return f"one that raises: {outcome!r}"
        if value == SLEEPS_S and not isinstance(outcome, asyncio.CancelledError):
            return f"cancelled one: {outcome!r}"
    return ""


@dataclass
class Found:
    """What callers find.

    Attributes:
        timeout_s: What a client waits for its model and, after that, for each answer.
        calls: Their number, by what they came to: ``right``, ``wrong: ...``, or an error's class.
        longest_s: The longest wait for a response, less the time in which its caller was stopped.
    """

    timeout_s: float
    calls: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, counts: dict[str, int], waited_s: float, title: str) -> None:
        """Add what the caller of this title has reported."""
        with self._lock:
            self.calls.update(counts)
            self.longest_s = max(self.longest_s, waited_s)
            if waited_s > 2 * self.timeout_s + _GRACE_S:
                self.problems.append(f"a call of the {title} caller took {waited_s:.1f} s, beyond its timeouts")
            self.problems += [f"{title}: {count} calls: {what}" for what, count in counts.items() if "wrong" in what]


class Caller:
    """A process that calls until it is ended; on leaving the context, it is.

    Args:
        kind: Of the calls, as ``checked_load.py`` has it.
        protocol: ``http`` or ``grpc``.
        port: Of the server.
        found: Gets what it reports.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, kind: str, protocol: str, port: int, found: Found) -> None:
        self.title = f"{kind} {protocol}"
        self._arguments, self._found = (kind, protocol, port, found), found
        self._stops: list[tuple[float, float]] = []
        options = [f"--calls={kind}", f"--timeout={found.timeout_s}"]
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), "checked", protocol, f"--port={port}", *options],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is not None:
            self._found.problems.append(f"the {self.title} caller ended by itself: {self._process.returncode}")
        self._end(signal.SIGTERM)

    def kill(self) -> Caller:
        """Kill the process; returns another caller of its kind."""
        self._end(signal.SIGKILL)
        return Caller(*self._arguments)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have the process stop, in the context; that time does not count as waiting."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._stops.append((began, time.monotonic()))
            self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with suppress(json.JSONDecodeError):  # cut short by a kill
                    self._add(**json.loads(line))

    def _add(self, counts: dict[str, int], longest: tuple[float, float]) -> None:
        began, ended = longest
        stopped_s = sum(max(0.0, min(ended, last) - max(began, first)) for first, last in self._stops)
        self._found.add(counts, ended - began - stopped_s, self.title)
