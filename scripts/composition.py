"""What it costs that models call models: handles beside clients on loopback, pipelines, splits and shadows.

    composition.py [--rounds 5] [--seconds 2]

One server in this process' child; the forms of a row take turns within each round.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from pytriton import (
    ModelClient,
    ModelConfig,
    ModelHandle,
    Pipeline,
    Shadow,
    Split,
    Step,
    Tensor,
    Triton,
    TritonConfig,
    batch,
)

X, Y = [Tensor(name="x", shape=(-1,), dtype=np.float32)], [Tensor(name="x", shape=(-1,), dtype=np.float32)]
CLIENTS = 64
SMALL, LARGE = np.zeros((1, 16), np.float32), np.zeros((1, 1 << 22), np.float32)


@batch
def echo(x: Any) -> dict[str, Any]:
    return {"x": x}


@batch
def by_handle(x: Any, echo: ModelHandle) -> dict[str, Any]:
    return echo(x)


@batch
async def by_handle_in_coroutine(x: Any, echo: ModelHandle) -> dict[str, Any]:
    return await echo(x)


@batch
def three_handles(x: Any, echo: ModelHandle, echo_2: ModelHandle, echo_3: ModelHandle) -> dict[str, Any]:
    return echo_3(echo_2(echo(x)["x"])["x"])


def looped(url: str, *names: str) -> Callable[..., Any]:
    """The same by clients on loopback."""
    clients = cache(lambda _: [ModelClient(url, name) for name in names])

    @batch
    def by_clients(x: Any) -> dict[str, Any]:
        for client in clients(threading.get_ident()):
            x = client.infer_batch(x)["x"]
        return {"x": x}

    return by_clients


def p50_us(client: ModelClient, x: Any, seconds: float) -> float:
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client.infer_batch(x)
        times.append(time.perf_counter() - start)
    return 1e6 * median(times)


def rate(url: str, name: str, seconds: float) -> float:
    """Requests per second of many clients."""
    stop = time.perf_counter() + seconds

    def call(_: int) -> int:
        count = 0
        with ModelClient(url, name) as client:
            while time.perf_counter() < stop:
                client.infer_batch(SMALL)
                count += 1
        return count

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(call, range(CLIENTS))) / seconds


def free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per cell")
    options = parser.parse_args()
    http, grpc, metrics = free_ports(3)
    url = f"http://127.0.0.1:{http}"
    with Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)) as triton:
        several = ModelConfig(max_batch_size=128)
        for name in ("echo", "echo_2", "echo_3"):
            triton.bind(name, echo, X, Y, config=several)
        for function in (by_handle, by_handle_in_coroutine, three_handles):
            triton.bind(function.__name__, function, X, Y, config=several)
        triton.bind("by_client", looped(url, "echo"), X, Y, config=several)
        triton.bind("three_clients", looped(url, "echo", "echo_2", "echo_3"), X, Y, config=several)
        triton.bind("pipeline", Pipeline("echo", "echo_2", Step("echo_3", outputs={"x": "y"})))
        triton.bind("split", Split({"echo": 1, "echo_2": 1}))
        triton.bind("shadow", Shadow("echo", to="echo_2"))
        rows = {
            "p50 us, 64 B": (
                ["echo", "by_client", "by_handle", "by_handle_in_coroutine", "pipeline", "split", "shadow"],
                lambda name, client: p50_us(client, SMALL, options.seconds),
            ),
            "p50 us, 16 MiB": (
                ["echo", "by_client", "by_handle"],
                lambda name, client: p50_us(client, LARGE, options.seconds),
            ),
            f"requests/s, {CLIENTS} clients": (
                ["echo", "three_clients", "three_handles", "pipeline", "split", "shadow"],
                lambda name, client: rate(url, name, options.seconds),
            ),
        }
        for title, (names, measure) in rows.items():
            clients = {name: ModelClient(url, name) for name in names}
            for client in clients.values():
                client.infer_batch(SMALL)
            cells: dict[str, list[float]] = {name: [] for name in names}
            for number in range(options.rounds):
                for index in range(len(names)):
                    name = names[(index + number) % len(names)]
                    cells[name].append(measure(name, clients[name]))
            for name, values in cells.items():
                print(
                    f"{title:<26} {name:<24} {median(values):>10.0f} ({min(values):.0f}-{max(values):.0f})", flush=True
                )
            for client in clients.values():
                client.close()


if __name__ == "__main__":
    main()
