"""Loads through clients: ``python scripts/clients.py KIND PROTOCOL --port 8000`` measures one kind, and prints JSON.

Except for ``inprocess`` they use the public clients alone, so that nvidia-pytriton's interpreter runs them too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter_ns, process_time
from typing import Any

import numpy as np
from connections import TIMEOUT_S
from load import Tally, Values, figures, quantiles
from numpy.typing import NDArray
from payloads import HOST, MODEL, WORKLOADS, LoadError
from processes import open_sockets, resident_bytes, threads
from tritonclient import grpc

import pytriton.client
from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["OpenStream", "alternate", "check_double", "churn", "measure_streams"]

INIT_TIMEOUT_S = 10.0
BLOCK_CALLS = 50
CHURN_FIRST = 20  # clients before the census, which make what a process has once, such as gRPC's own threads
CHURN_SETTLE_S = 5.0  # gRPC closes sockets and ends threads some time after a channel was closed
POLL_S = 0.05
IN_FLIGHT = 16
Floats = NDArray[np.float32]
Call = Callable[[], Any]
Receive = Callable[[], tuple[list[Any], int, int]]  # responses, nanoseconds to the first one and to the end


def check_double(output: Any, values: Floats) -> None:
    """Raise LoadError unless the output is the double of the values, shape included."""
    if not np.array_equal(output, 2 * values):
        raise LoadError(f"wrong output {output}, expected {2 * values}")


def _values(workload: str = "64 B") -> Floats:
    return WORKLOADS[workload].inputs(1)["INPUT"]


def alternate(calls: Mapping[str, Call], values: Floats, seconds: float, warmup_s: float) -> dict[str, Values]:
    """Measure calls of several kinds for about ``seconds`` each, in alternating blocks, which meet the same noise.

    Each pass over the kinds is followed by one in the opposite order. Errors are those of the whole run.

    Raises:
        LoadError: A call before or after the measurement does not return the double of the values, or all fail.
    """
    for call in calls.values():
        check_double(call(), values)
    names, errors = list(calls), dict.fromkeys(calls, 0)
    for duration_s in (warmup_s, seconds):
        latencies_ns, took_ns = {name: array("q") for name in calls}, dict.fromkeys(calls, 0)
        end_ns, going = perf_counter_ns() + int(duration_s * len(calls) * 1e9), True
        while going:
            for name in names:
                began_ns = perf_counter_ns()
                for _ in range(BLOCK_CALLS):
                    sent_ns = perf_counter_ns()
                    try:
                        calls[name]()
                    except Exception:  # the errors of two packages have no common root
                        errors[name] += 1
                    else:
                        latencies_ns[name].append(perf_counter_ns() - sent_ns)
                took_ns[name] += perf_counter_ns() - began_ns
            names.reverse()
            going = perf_counter_ns() < end_ns
    for call in calls.values():
        check_double(call(), values)
    return {name: figures(found, took_ns[name] / 1e9, errors[name], len(found)) for name, found in latencies_ns.items()}


def run_blocking(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, Values]:
    """``ModelClient.infer_batch`` and a call of bare tritonclient as its careful user writes it, in turn."""
    lib, values = importlib.import_module(f"tritonclient.{chosen.protocol}"), _values()
    client = ModelClient(chosen.url, chosen.model, init_timeout_s=INIT_TIMEOUT_S)
    closing.callback(client.close)
    bare, outputs = lib.InferenceServerClient(f"{HOST}:{chosen.port}"), [lib.InferRequestedOutput("OUTPUT")]
    closing.callback(bare.close)

    def call_bare() -> Any:
        tensor = lib.InferInput("INPUT", values.shape, "FP32")
        tensor.set_data_from_numpy(values)
        return bare.infer(chosen.model, [tensor], outputs=outputs).as_numpy("OUTPUT")

    calls = {"pytriton": lambda: client.infer_batch(INPUT=values)["OUTPUT"], "tritonclient": call_bare}
    return alternate(calls, values, chosen.seconds, chosen.warmup)


async def run_asyncio(chosen: argparse.Namespace, closing: ExitStack) -> Values:
    """One ``AsyncioModelClient`` with several requests in flight."""
    values = _values()
    async with AsyncioModelClient(chosen.url, chosen.model, init_timeout_s=INIT_TIMEOUT_S) as client:
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
        found, used_s = tally.figures(), process_time() - began_s
        check_double((await client.infer_batch(INPUT=values))["OUTPUT"], values)
    return {**found, "client CPU us": used_s / found["answered"] * 1e6}


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


def run_stream(chosen: argparse.Namespace, closing: ExitStack) -> Values:
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
    client = DecoupledModelClient(chosen.url, chosen.model, init_timeout_s=INIT_TIMEOUT_S)
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


def measure_streams(receive: Receive, read: Callable[[Any], Any], values: Floats, chosen: argparse.Namespace) -> Values:
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
    p50_ns, p99_ns = quantiles(first_ns)
    answered = chosen.count * streams
    return {
        "responses/s": chosen.count * len(end_ns) / sum(end_ns) * 1e9,
        "first response p50 us": p50_ns / 1000,
        "first response p99 us": p99_ns / 1000,
        "client CPU us": (process_time() - began_s) / answered * 1e6,
        "answered": answered,
    }


async def run_churn(chosen: argparse.Namespace, closing: ExitStack) -> Values:
    """Clients that are opened, used once and closed: what they leave in the process, and what each takes."""
    kind, values = getattr(pytriton.client, chosen.client), _values()
    inputs = {"INPUT": values}
    if "Decoupled" in chosen.client:
        inputs["COUNT"] = np.array([[2]], np.int32)

    async def use() -> None:
        client = kind(chosen.url, chosen.model, init_timeout_s=INIT_TIMEOUT_S)
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
) -> Values:
    """Use ``count`` clients, ``first`` others before; threads and sockets get ``settle_s`` to go away."""

    async def census(when: str) -> Values:
        await asyncio.sleep(POLL_S)
        pid = os.getpid()
        found = {"threads": threads(pid), "sockets": open_sockets(pid), "RSS MiB": resident_bytes(pid) / 2**20}
        return {f"{what} {when}": value for what, value in found.items()}

    for _ in range(first):
        await use()
    before, began = await census("before"), time.perf_counter()
    for _ in range(count):
        await use()
    took_ms, deadline = (time.perf_counter() - began) * 1e3, time.monotonic() + settle_s
    after = await census("after")
    while (
        any(after[f"{what} after"] > before[f"{what} before"] for what in ("threads", "sockets"))
        and time.monotonic() < deadline
    ):
        after = await census("after")
    return {"ms per client": took_ms / count, **before, **after}


def run_inprocess(chosen: argparse.Namespace, closing: ExitStack) -> dict[str, Values]:
    """Requests to a callable of this process, with the server in it; in turn with ``ModelClient`` over HTTP."""
    from pytriton.decorators import batch
    from pytriton.inprocess import Triton
    from pytriton.model_config import ModelConfig, Tensor

    @batch
    def double(INPUT: Floats) -> dict[str, Floats]:
        return {"OUTPUT": 2 * INPUT}

    def infer(values: Floats) -> Any:
        (response,) = model.infer(inputs={"INPUT": values})
        return np.from_dlpack(response.outputs["OUTPUT"])

    def pipelined(seconds: float) -> float:
        """Requests per second with several in flight."""
        pending = deque(model.infer(inputs={"INPUT": small}) for _ in range(IN_FLIGHT))
        began, answered = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            np.from_dlpack(next(pending.popleft()).outputs["OUTPUT"])
            pending.append(model.infer(inputs={"INPUT": small}))
            answered += 1
        rate = answered / (time.perf_counter() - began)
        for each in pending:
            next(each)
        return rate

    small, large = _values(), _values("1 MiB")
    tensors = {f"{name.lower()}s": [Tensor(name=name, dtype=np.float32, shape=(-1,))] for name in ("INPUT", "OUTPUT")}
    triton = closing.enter_context(Triton())
    triton.bind(MODEL, double, **tensors, config=ModelConfig(max_batch_size=128))
    model, client = triton.server.model(MODEL), closing.enter_context(triton.client(MODEL))
    over_http = closing.enter_context(ModelClient(chosen.url, chosen.model))
    calls = {
        "ModelClient, http 1 x 64 B": lambda: over_http.infer_batch(INPUT=small)["OUTPUT"],
        "ModelClient, in process 1 x 64 B": lambda: client.infer_batch(INPUT=small)["OUTPUT"],
        "in process 1 x 64 B": partial(infer, small),
    }
    found = alternate(calls, small, chosen.seconds, chosen.warmup)
    found |= alternate({"in process 1 x 1 MiB": partial(infer, large)}, large, chosen.seconds, chosen.warmup)
    pipelined(chosen.warmup)
    return {**found, f"in process {IN_FLIGHT} x 64 B": {"requests/s": pipelined(chosen.seconds)}}


KINDS = {
    "blocking": run_blocking,
    "asyncio": run_asyncio,
    "stream": run_stream,
    "churn": run_churn,
    "inprocess": run_inprocess,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default=MODEL, help="that the clients call (double)")
    parser.add_argument("--connections", type=int, default=1, help="requests in flight of asyncio (1)")
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement (1)")
    parser.add_argument(
        "--client", default="ModelClient", help="of stream: pytriton or tritonclient; of churn: a class"
    )
    parser.add_argument("--count", type=int, default=500, help="responses of a stream, clients of churn (500)")
    chosen = parser.parse_args()
    chosen.url = f"{chosen.protocol}://{HOST}:{chosen.port}"
    with ExitStack() as closing:
        found: Any = KINDS[chosen.kind](chosen, closing)
        print(json.dumps(asyncio.run(found) if asyncio.iscoroutine(found) else found))


if __name__ == "__main__":
    main()
