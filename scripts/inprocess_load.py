"""Requests to a callable of the same process, with the server in it; prints one line of JSON.

Usage: ``python scripts/inprocess_load.py --port 8000 --model double --seconds 3 --warmup 1 --memory-requests 1000000``.
One thread sends and receives: one request after the other, small and of 1 MiB; then always 16 of them in flight. Small
ones are sent to the same callable of another process over HTTP, too: some to the one, some to the other, so that both
meet the same noise. Before, a server without models is started and stopped; last come the requests over which memory is
looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
from processes import memory
from tensors import Floats
from wire import HOST

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.inprocess import Model, Server, Triton
from pytriton.model_config import ModelConfig, Tensor

FLIGHTS = 16
BLOCK_CALLS = 50
STARTS = 5
Call = Callable[[Floats], Floats]
LOOKS = (0.1, 0.5, 1.0)  # at memory, when so much of its requests is done


@batch
def double(INPUT):
    """As the hosts' callable does."""
    return {"OUTPUT": 2 * INPUT}


def start_s() -> float:
    """Median seconds from nothing to a server that is ready, without models."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(STARTS):
            began = perf_counter()
            server = Server(model_repository=folder).start(wait_until_ready=True, polling_interval=0.001)
            found.append(perf_counter() - began)
            server.stop()
    return statistics.median(found)


def in_turn(calls: dict[str, Call], values: Floats, seconds: float, warmup_s: float) -> dict[str, dict[str, float]]:
    """Latencies of closed loops, of which one goes on where the other has stopped; each gets so many seconds."""
    began, latencies = perf_counter(), {name: list[float]() for name in calls}
    while (turn := perf_counter()) < began + warmup_s + seconds * len(calls):
        for name, call in calls.items():
            found = _block(call, values)
            if turn >= began + warmup_s:
                latencies[name] += found
    return {name: _summary(found) for name, found in latencies.items()}


def _block(call: Call, values: Floats) -> list[float]:
    latencies = []
    for _ in range(BLOCK_CALLS):
        sent = perf_counter()
        output = call(values)
        latencies.append(perf_counter() - sent)
    if not np.array_equal(output, 2 * values):
        raise SystemExit(f"wrong output {output}")
    return latencies


def _summary(latencies: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e6
    return {"requests/s": len(latencies) / sum(latencies), "p50 us": float(p50), "p99 us": float(p99)}


def infer(model: Model, values: Floats) -> Floats:
    """From array to array."""
    (response,) = model.infer(inputs={"INPUT": values})
    return np.from_dlpack(response.outputs["OUTPUT"])


def pipelined(model: Model, values: Floats, seconds: float = 0, count: int = 0) -> float:
    """Requests a second with several in flight, for so many seconds or requests."""
    flights = deque(model.infer(inputs={"INPUT": values}) for _ in range(FLIGHTS))
    began, answered = perf_counter(), 0
    while answered < count or perf_counter() < began + seconds:
        np.from_dlpack(next(flights.popleft()).outputs["OUTPUT"])
        flights.append(model.infer(inputs={"INPUT": values}))
        answered += 1
    rate = answered / (perf_counter() - began)
    for each in flights:
        next(each)
    return rate


def remembered(model: Model, values: Floats, requests: int) -> dict[str, float]:
    """RSS of this process in the course of so many requests."""
    found, done = {}, 0
    for share in LOOKS:
        pipelined(model, values, count=int(share * requests) - done)
        done = int(share * requests)
        found[f"RSS MiB after {done} requests"] = memory(os.getpid()).rss_bytes / 2**20
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description="Call a callable through a server in this process; prints JSON.")
    parser.add_argument("--port", type=int, required=True, help="of the other process")
    parser.add_argument("--model", required=True, help="there")
    parser.add_argument("--seconds", type=float, default=3, help="of each load")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before each")
    parser.add_argument("--memory-requests", type=int, default=0, help="to look at memory over (0: do not)")
    chosen = parser.parse_args()
    small, large = np.ones((1, 16), np.float32), np.ones((1, 1 << 18), np.float32)
    found = {"start and stop": {"server without models, start s": start_s()}}
    tensors = {f"{name.lower()}s": [Tensor(name=name, dtype=np.float32, shape=(-1,))] for name in ("INPUT", "OUTPUT")}
    with Triton() as triton:
        triton.bind("double", double, **tensors, config=ModelConfig(max_batch_size=128))
        model = triton.server.model("double")
        times = chosen.seconds, chosen.warmup
        with (
            triton.client("double") as client,
            ModelClient(f"http://{HOST}:{chosen.port}", chosen.model) as http_client,
        ):
            calls: dict[str, Call] = {
                "ModelClient, http 1 x 64 B": lambda values: http_client.infer_batch(INPUT=values)["OUTPUT"],
                "ModelClient, in process 1 x 64 B": lambda values: client.infer_batch(INPUT=values)["OUTPUT"],
                "in process 1 x 64 B": partial(infer, model),
            }
            found |= in_turn(calls, small, *times)
        found |= in_turn({"in process 1 x 1 MiB": partial(infer, model)}, large, *times)
        pipelined(model, small, chosen.warmup)
        found[f"in process {FLIGHTS} x 64 B"] = {"requests/s": pipelined(model, small, chosen.seconds)}
        if chosen.memory_requests:
            found["memory in process"] = remembered(model, small, chosen.memory_requests)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
