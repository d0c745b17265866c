"""Which batcher keeps a latency, and which answers the most texts: ours beside dynamic batchers.

    batchers.py target    six loads at their own rates; the latency at the percentile, and how many requests are
                          answered in time, beside the best dynamic batcher of a grid
    batchers.py tokens    texts of 4 to 512 tokens from 64 clients; texts/s of batches limited by tokens, beside
                          those limited by rows

The callables sleep for as long as a model would compute, so that a machine of two processors measures the batchers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import product
from statistics import median

import numpy as np

from pytriton import (
    DynamicBatcher,
    LatencyTarget,
    ModelConfig,
    Processes,
    QueuePolicy,
    Tensor,
    Triton,
    TritonConfig,
    batch,
)

TARGET_MS, SHARE = 100, 0.99
MOST_ROWS = 64
FIXED_S, ROW_S = 0.008, 0.0005  # of a batch: 1,600 rows/s at most
GRID = [(rows, delay_ms, timeout_ms) for rows, delay_ms, timeout_ms in product((16, 32, 64), (0, 10), (20, 50, 0))]

LENGTHS = (4, 512)
TOKEN_S, TEXT_BATCH_S = 0.00001, 0.002  # padded; 2 ms for a batch, as MiniLM on a small GPU
CLIENTS = 64


def make_timed() -> Callable[..., object]:
    """A callable whose time its requests say: x is the slowness."""

    @batch
    def timed(x: np.ndarray) -> list[np.ndarray]:
        time.sleep(float(x.max()) * (FIXED_S + ROW_S * len(x)))
        return [x]

    return timed


def make_encoder() -> Callable[..., object]:
    """A callable that takes as long as its padded batch has tokens; a token is a byte."""

    @batch
    def encode(text: np.ndarray) -> list[np.ndarray]:
        longest = max(len(each) for each in text[:, 0])
        time.sleep(TEXT_BATCH_S + TOKEN_S * len(text) * longest)
        return [np.zeros((len(text), 1), np.float32)]

    return encode


@dataclass
class Load:
    """Requests per second at a time, rows of every fourth request, and how slow the callable is."""

    name: str
    rate: Callable[[float], float]
    is_random: bool = True
    large: int = 1
    slowness: Callable[[float], float] = field(default=lambda now: 1.0)

    def arrivals(self, seconds: float) -> Iterator[tuple[float, int]]:
        """When requests come, in seconds, and their rows."""
        gaps = random.Random(7)
        now, number = 0.0, 0
        while now < seconds:
            yield now, self.large if number % 4 == 3 else 1
            now += (gaps.expovariate(1) if self.is_random else 1.0) / self.rate(now)
            number += 1


def loads(seconds: float) -> list[Load]:
    def slow_in_the_middle(now: float) -> float:
        return 2.0 if seconds / 3 < now < 2 * seconds / 3 else 1.0

    return [
        Load("steady", lambda now: 500, is_random=False),
        Load("Poisson", lambda now: 500),
        Load("bursts x10", lambda now: 1500 if now % 5 < 0.5 else 150),
        Load("ramp", lambda now: 100 + 1700 * now / seconds),
        Load("two sizes", lambda now: 150, large=16),
        Load("slower by half", lambda now: 350, slowness=slow_in_the_middle),
    ]


class Connections:
    """Keep-alive connections to a server, as many as there are requests in flight."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, model: str, body: bytes) -> int:
        """The status of the answer."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:] if line)
        await reader.readexactly(int(fields[b"content-length"]))
        self._idle.append((reader, writer))
        return int(answer.split(b" ", 2)[1])


def body_of(name: str, datatype: str, data: list[object]) -> bytes:
    tensor = {"name": name, "shape": [len(data), 1], "datatype": datatype, "data": data}
    return json.dumps({"inputs": [tensor]}).encode()


async def offer(connections: Connections, model: str, load: Load, seconds: float) -> tuple[float, float, float]:
    """Latency in ms at the share, and shares of requests in time and refused."""
    latencies: list[float] = []
    statuses: list[int] = []

    async def one(due: float, body: bytes) -> None:
        status = await connections.post(model, body)
        statuses.append(status)
        if status == 200:
            latencies.append(1000 * (time.perf_counter() - due))

    requests = set()
    begin = time.perf_counter()
    for at, rows in load.arrivals(seconds):
        if (wait := begin + at - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        requests.add(asyncio.create_task(one(begin + at, body_of("x", "FP32", [load.slowness(at)] * rows))))
    await asyncio.gather(*requests)
    ordered = sorted(latencies) or [math.inf]
    at_share = ordered[math.ceil(SHARE * len(ordered)) - 1]
    in_time = sum(each <= TARGET_MS for each in latencies) / len(statuses)
    return at_share, in_time, 1 - len(latencies) / len(statuses)


async def measure_target(port: int, seconds: float, rounds: int, models: list[str]) -> None:
    connections = Connections(port)
    for load in loads(seconds):
        found: dict[str, list[tuple[float, float, float]]] = {model: [] for model in models}
        for _ in range(rounds):
            for model in models:
                found[model].append(await offer(connections, model, load, seconds))
        middle = {model: tuple(map(median, zip(*each, strict=True))) for model, each in found.items()}
        ours = middle.pop("target")
        met = {model: each for model, each in middle.items() if each[0] <= TARGET_MS} or middle
        best = max(met, key=lambda model: met[model][1])
        print(f"{load.name:15} {shown(ours)}; {ours[1] / met[best][1]:.2f} of {best}: {shown(met[best])}", flush=True)


def shown(found: tuple[float, ...]) -> str:
    at_share, in_time, refused = found
    return f"p99 {at_share:.1f} ms, in time {in_time:.3f}, refused {refused:.3f}"


async def measure_tokens(port: int, seconds: float, rounds: int, models: list[str]) -> None:
    connections = Connections(port)
    texts = random.Random(7)
    low, high = map(math.log, LENGTHS)
    bodies = [body_of("text", "BYTES", ["a" * round(math.exp(texts.uniform(low, high)))]) for _ in range(5000)]

    async def client(model: str, number: int, end: float, latencies: list[float]) -> None:
        while (now := time.perf_counter()) < end:
            await connections.post(model, bodies[number % len(bodies)])
            latencies.append(1000 * (time.perf_counter() - now))
            number += 1

    for _ in range(rounds):
        for model in models:
            latencies: list[float] = []
            end = time.perf_counter() + seconds
            await asyncio.gather(*(client(model, 97 * number, end, latencies) for number in range(CLIENTS)))
            ordered = sorted(latencies)
            p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
            rate = len(ordered) / seconds
            print(f"{model:12} {rate:7.0f} texts/s, p50 {median(ordered):6.1f} ms, p99 {p99:6.1f} ms", flush=True)


def serve(
    configs: dict[str, ModelConfig], make: Callable[[], Callable[..., object]], given: Tensor
) -> tuple[Triton, int]:
    """A running server with a worker process for each model, and its port for HTTP."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(3)]
        http, grpc, metrics = (each.getsockname()[1] for each in listeners)
    triton = Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics))
    for name, config in configs.items():
        triton.bind(name, Processes(make), [given], [Tensor(name="y", shape=(1,), dtype=np.float32)], config=config)
    triton.run()
    return triton, http


def target_configs() -> dict[str, ModelConfig]:
    configs = {"target": ModelConfig(max_batch_size=MOST_ROWS, batcher=LatencyTarget(TARGET_MS, SHARE))}
    for rows, delay_ms, timeout_ms in GRID:
        policy = QueuePolicy(default_timeout_microseconds=1000 * timeout_ms) if timeout_ms else None
        batcher = DynamicBatcher(max_queue_delay_microseconds=1000 * delay_ms, default_queue_policy=policy)
        name = f"rows{rows}-delay{delay_ms}-timeout{timeout_ms}"
        configs[name] = ModelConfig(max_batch_size=rows, batcher=batcher)
    return configs


def token_configs() -> dict[str, ModelConfig]:
    configs = {f"rows-{rows}": ModelConfig(max_batch_size=rows) for rows in (4, 8, 16, 32, 64)}
    for most in (1024, 2048, 4096, 8192):
        configs[f"tokens-{most}"] = ModelConfig(max_batch_size=256, batch_cost="text", max_batch_cost=most)
    return configs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=["target", "tokens"])
    parser.add_argument("--seconds", type=float, default=12, help="of each load (12)")
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.measure == "target":
        measure, configs, make = measure_target, target_configs(), make_timed
        given = Tensor(name="x", shape=(1,), dtype=np.float32)
    else:
        measure, configs, make = measure_tokens, token_configs(), make_encoder
        given = Tensor(name="text", shape=(1,), dtype=bytes)
    triton, port = serve(configs, make, given)
    with triton:
        asyncio.run(measure(port, chosen.seconds, chosen.rounds, list(configs)))


if __name__ == "__main__":
    main()
