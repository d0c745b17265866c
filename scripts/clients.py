"""Loads through clients: each function measures one kind for load.py, and returns what is printed as JSON.

Except for :func:`run_inprocess` they use the public clients alone, so that nvidia-pytriton's interpreter runs them too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import statistics
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter_ns, process_time
from typing import Any

import numpy as np
from connections import TIMEOUT_S
from numpy.typing import NDArray
from payloads import HOST, MODEL, WORKLOADS, LoadError
from processes import memory, open_sockets, resident_bytes, threads
from tally import Result, Tally, quantiles
from tritonclient import grpc

import pytriton.client
from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["Calls", "OpenStream", "alternate", "check_double", "churn", "measure_streams"]

INIT_TIMEOUT_S = 10.0
BLOCK_CALLS = 50
CHURN_FIRST = 20  # clients before the census, which make what a process has once, such as gRPC's own threads
CHURN_SETTLE_S = 5.0  # gRPC closes sockets and ends threads some time after a channel was closed
POLL_S = 0.05
IN_FLIGHT = 16
STARTS = 5
LOOKS = (0.1, 0.5, 1.0)  # at memory, after so much of its requests
Floats = NDArray[np.float32]
Call = Callable[[], Any]
Receive = Callable[[], tuple[list[Any], int, int]]  # responses, nanoseconds to the first one and to the end


def check_double(output: Any, values: Floats) -> None:
    """Raise LoadError unless the output is the double of the values, shape included."""
    if not np.array_equal(output, 2 * values):
        raise LoadError(f"wrong output {output}, expected {2 * values}")


def _values(workload: str = "64 B") -> Floats:
    return WORKLOADS[workload].inputs(1)["INPUT"]


def _url(chosen: argparse.Namespace) -> str:
    return f"{chosen.protocol}://{HOST}:{chosen.port}"


@dataclass
class Calls:
    """Calls of one kind: their latencies, and the duration of the blocks that they were made in."""

    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    errors: int = 0
    duration_ns: int = 0

    def block(self, call: Call) -> None:
        """Make some calls, one after the other."""
        began_ns = perf_counter_ns()
        for _ in range(BLOCK_CALLS):
            sent_ns = perf_counter_ns()
            try:
                call()
            except Exception:  # the errors of two packages have no common root
                self.errors += 1
            else:
                self.latencies_ns.append(perf_counter_ns() - sent_ns)
        self.duration_ns += perf_counter_ns() - began_ns

    def result(self, generator: str) -> Result:
        """What was measured; raises LoadError if nothing was."""
        count = len(self.latencies_ns)
        if not count:
            raise LoadError(f"{generator} was not answered once, errors: {self.errors}")
        latencies_us = [latency_ns / 1000 for latency_ns in quantiles(self.latencies_ns)]
        return Result(generator, count, count, self.errors, count / self.duration_ns * 1e9, *latencies_us)


def alternate(calls: Mapping[str, Call], values: Floats, seconds: float, warmup_s: float) -> dict[str, Result]:
    """Measure calls of several kinds for about ``seconds`` each, in alternating blocks, which meet the same noise.

    Each pass over the kinds is followed by one in the opposite order. Errors are those of the whole run.

    Raises:
        LoadError: A call before or after the measurement does not return the double of the values.
    """
    for call in calls.values():
        check_double(call(), values)
    measured = [{name: Calls() for name in calls} for _ in range(2)]
    for found, duration_s in zip(measured, (warmup_s, seconds), strict=True):
        names, end_ns, going = list(calls), perf_counter_ns() + int(duration_s * len(calls) * 1e9), True
        while going:
            for name in names:
                found[name].block(calls[name])
            names.reverse()
            going = perf_counter_ns() < end_ns
    for call in calls.values():
        check_double(call(), values)
    warm, found = measured
    for name, each in found.items():
        each.errors += warm[name].errors
    return {name: each.result(name) for name, each in found.items()}


def run_blocking(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, Any]:
    """``ModelClient.infer_batch`` and a call of bare tritonclient as its careful user writes it, in turn."""
    lib, values = importlib.import_module(f"tritonclient.{chosen.protocol}"), _values()
    client = ModelClient(_url(chosen), chosen.model, init_timeout_s=INIT_TIMEOUT_S)
    closing.callback(client.close)
    bare, outputs = lib.InferenceServerClient(f"{HOST}:{chosen.port}"), [lib.InferRequestedOutput("OUTPUT")]
    closing.callback(bare.close)

    def call_bare() -> Any:
        tensor = lib.InferInput("INPUT", values.shape, "FP32")
        tensor.set_data_from_numpy(values)
        return bare.infer(chosen.model, [tensor], outputs=outputs).as_numpy("OUTPUT")

    calls = {"pytriton": lambda: client.infer_batch(INPUT=values)["OUTPUT"], "tritonclient": call_bare}
    found = alternate(calls, values, chosen.seconds, chosen.warmup)
    return {name: asdict(result) for name, result in found.items()}


async def run_asyncio(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, Any]:
    """One ``AsyncioModelClient`` with several requests in flight."""
    values = _values()
    async with AsyncioModelClient(_url(chosen), chosen.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        check_double((await client.infer_batch(INPUT=values))["OUTPUT"], values)
        began_s, tally = process_time(), Tally(chosen.warmup, chosen.seconds)

        async def repeat() -> None:
            going = True
            while going:
                sent_ns, good = perf_counter_ns(), True
                try:
                    await client.infer_batch(INPUT=values)
                except PyTritonClientError:
                    good = False
                going = tally.add(sent_ns, good)

        await asyncio.gather(*(repeat() for _ in range(chosen.connections)))
        result, used_s = tally.result("AsyncioModelClient"), process_time() - began_s
        check_double((await client.infer_batch(INPUT=values))["OUTPUT"], values)
    return {**asdict(result), "client_cpu_us": used_s / result.answered * 1e6}


class OpenStream:
    """Requests, one after the other, over a stream of tritonclient.grpc that stays open."""

    def __init__(self, client: Any, model: str, inputs: list[Any]) -> None:
        self._client, self._model, self._inputs = client, model, inputs
        self._ends: SimpleQueue[Exception | int] = SimpleQueue()  # when a stream ended, or why it failed
        self._responses: list[Any] = []
        self._first_ns = 0
        client.start_stream(self._receive_response)

    def receive(self) -> tuple[list[Any], int, int]:
        """Send a request and wait for all of its responses; raises LoadError if it fails or does not end."""
        self._responses, sent_ns = [], perf_counter_ns()
        self._client.async_stream_infer(self._model, self._inputs, enable_empty_final_response=True)
        try:
            end = self._ends.get(timeout=TIMEOUT_S)
        except Empty:
            raise LoadError(f"{len(self._responses)} responses and no end in {TIMEOUT_S} s") from None
        if isinstance(end, Exception):
            raise LoadError(f"the stream failed after {len(self._responses)} responses: {end}") from end
        return self._responses, self._first_ns - sent_ns, end - sent_ns

    def _receive_response(self, result: Any, error: Exception | None) -> None:
        if error is not None:
            self._ends.put(error)
            return
        message = result.get_response()
        if message.outputs:
            if not self._responses:
                self._first_ns = perf_counter_ns()
            self._responses.append(result)
        if message.parameters["triton_final_response"].bool_param:
            self._ends.put(perf_counter_ns())


def run_stream(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, float]:
    """Streams of responses, one after the other, to tritonclient or to ``DecoupledModelClient``."""
    values, counts = _values(), np.array([[chosen.count]], np.int32)
    if chosen.client != "pytriton":
        inputs = []
        for name, datatype, each in (("INPUT", "FP32", values), ("COUNT", "INT32", counts)):
            inputs.append(grpc.InferInput(name, each.shape, datatype))
            inputs[-1].set_data_from_numpy(each)
        bare = closing.enter_context(grpc.InferenceServerClient(f"{HOST}:{chosen.port}"))
        receive: Receive = OpenStream(bare, chosen.model, inputs).receive
        return measure_streams(receive, lambda response: response.as_numpy("OUTPUT"), values, chosen)
    client = DecoupledModelClient(_url(chosen), chosen.model, init_timeout_s=INIT_TIMEOUT_S)
    closing.callback(client.close)

    def call() -> tuple[list[Any], int, int]:
        responses: list[Floats] = []
        sent_ns = first_ns = perf_counter_ns()
        for response in client.infer_batch(INPUT=values, COUNT=counts):
            if not responses:
                first_ns = perf_counter_ns()
            responses.append(response["OUTPUT"])
        return responses, first_ns - sent_ns, perf_counter_ns() - sent_ns

    return measure_streams(call, np.asarray, values, chosen)


def measure_streams(
    receive: Receive, read: Callable[[Any], Any], values: Floats, chosen: argparse.Namespace
) -> dict[str, float]:
    """Receive one stream after the other; at least one as a warm-up and one more.

    Raises:
        LoadError: A stream had another number of responses, or a response of the last stream is wrong.
    """
    began_s, streams = process_time(), 0
    for duration_s in (chosen.warmup, chosen.seconds):
        first_ns, end_ns, last_ns, going = array("q"), array("q"), perf_counter_ns() + int(duration_s * 1e9), True
        while going:
            responses, first, end = receive()
            if len(responses) != chosen.count:
                raise LoadError(f"a stream had {len(responses)} responses instead of {chosen.count}")
            first_ns.append(first)
            end_ns.append(end)
            going = perf_counter_ns() < last_ns
        streams += len(first_ns)
        for response in responses:
            check_double(read(response), values)
    p50_us, _, p99_us = (value / 1000 for value in quantiles(first_ns))
    total = chosen.count * streams
    return {
        "responses": total,
        "responses_per_s": chosen.count * len(end_ns) / sum(end_ns) * 1e9,
        "first_p50_us": p50_us,
        "first_p99_us": p99_us,
        "client_cpu_us": (process_time() - began_s) / total * 1e6,
    }


async def run_churn(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, Any]:
    """Clients that are opened, used once and closed: what they leave in the process, and what each takes."""
    kind, values = getattr(pytriton.client, chosen.client or "ModelClient"), _values()
    inputs = {"INPUT": values}
    if "Decoupled" in chosen.client:
        inputs["COUNT"] = np.array([[2]], np.int32)

    async def use() -> None:
        client = kind(_url(chosen), chosen.model, init_timeout_s=INIT_TIMEOUT_S)
        if hasattr(client, "__aenter__"):
            async with client:
                found = client.infer_batch(**inputs)
                answers = [each async for each in found] if hasattr(found, "__aiter__") else [await found]
        else:
            with client:
                found = client.infer_batch(**inputs)
                answers = [found] if isinstance(found, dict) else list(found if "COUNT" in inputs else [found.result()])
        for answer in answers:
            check_double(answer["OUTPUT"], values)

    return await churn(use, chosen.count)


async def churn(
    use: Callable[[], Awaitable[None]], count: int, first: int = CHURN_FIRST, settle_s: float = CHURN_SETTLE_S
) -> dict[str, Any]:
    """Use ``count`` clients, ``first`` others before; threads and sockets get ``settle_s`` to go away."""

    async def census() -> dict[str, int]:
        await asyncio.sleep(POLL_S)
        pid = os.getpid()
        return {"threads": threads(pid), "sockets": open_sockets(pid), "rss_bytes": resident_bytes(pid)}

    for _ in range(first):
        await use()
    before, began = await census(), time.perf_counter()
    for _ in range(count):
        await use()
    ended, deadline = time.perf_counter(), time.monotonic() + settle_s
    after = await census()
    while any(after[name] > before[name] for name in ("threads", "sockets")) and time.monotonic() < deadline:
        after = await census()
    return {"before": before, "after": after, "client_ms": (ended - began) * 1e3 / count}


def run_inprocess(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, dict[str, float]]:
    """Requests to a callable of this process, with the server in it; in turn with ``ModelClient`` over HTTP."""
    from pytriton.decorators import batch
    from pytriton.inprocess import Server, Triton
    from pytriton.model_config import ModelConfig, Tensor

    @batch
    def double(INPUT: Floats) -> dict[str, Floats]:
        return {"OUTPUT": 2 * INPUT}

    def infer(values: Floats) -> Any:
        (response,) = model.infer(inputs={"INPUT": values})
        return np.from_dlpack(response.outputs["OUTPUT"])

    def pipelined(values: Floats, seconds: float = 0, count: int = 0) -> float:
        """Requests per second with several in flight, for so many seconds or requests."""
        pending = deque(model.infer(inputs={"INPUT": values}) for _ in range(IN_FLIGHT))
        began, answered = time.perf_counter(), 0
        while answered < count or time.perf_counter() < began + seconds:
            np.from_dlpack(next(pending.popleft()).outputs["OUTPUT"])
            pending.append(model.infer(inputs={"INPUT": values}))
            answered += 1
        rate = answered / (time.perf_counter() - began)
        for each in pending:
            next(each)
        return rate

    starts_s = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(STARTS):
            began = time.perf_counter()
            server = Server(model_repository=folder).start(wait_until_ready=True, polling_interval=0.001)
            starts_s.append(time.perf_counter() - began)
            server.stop()
    found = {"start and stop": {"server without models, start s": statistics.median(starts_s)}}
    small, large = _values(), _values("1 MiB")
    tensors = {f"{name.lower()}s": [Tensor(name=name, dtype=np.float32, shape=(-1,))] for name in ("INPUT", "OUTPUT")}
    triton = closing.enter_context(Triton())
    triton.bind(MODEL, double, **tensors, config=ModelConfig(max_batch_size=128))
    model, client = triton.server.model(MODEL), closing.enter_context(triton.client(MODEL))
    over_http = closing.enter_context(ModelClient(_url(chosen), chosen.model))
    calls = {
        "ModelClient, http 1 x 64 B": lambda: over_http.infer_batch(INPUT=small)["OUTPUT"],
        "ModelClient, in process 1 x 64 B": lambda: client.infer_batch(INPUT=small)["OUTPUT"],
        "in process 1 x 64 B": partial(infer, small),
    }
    results = alternate(calls, small, chosen.seconds, chosen.warmup)
    results |= alternate({"in process 1 x 1 MiB": partial(infer, large)}, large, chosen.seconds, chosen.warmup)
    for name, result in results.items():
        if result.errors:
            raise LoadError(f"{name}: {result.errors} errors")
        found[name] = {"requests/s": result.requests_per_s, "p50 us": result.p50_us, "p99 us": result.p99_us}
    pipelined(small, chosen.warmup)
    found[f"in process {IN_FLIGHT} x 64 B"] = {"requests/s": pipelined(small, chosen.seconds)}
    done, looked = 0, {}
    for share in LOOKS if chosen.memory_requests else ():
        pipelined(small, count=int(share * chosen.memory_requests) - done)
        done = int(share * chosen.memory_requests)
        looked[f"RSS MiB after {done} requests"] = memory(os.getpid()).rss_bytes / 2**20
    return found | ({"memory in process": looked} if looked else {})
