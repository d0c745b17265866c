"""Clients that are opened, used once and closed, one after the other, and what this leaves in the process.

Usage: ``python scripts/churn_load.py grpc --port 8001 --client ModelClient --clients 1000`` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from time import monotonic, perf_counter

import numpy as np
from caller import INIT_TIMEOUT_S, check_double, command_line, target_of, url
from processes import open_sockets, resident_bytes, threads
from wire import Target

import pytriton.client

__all__ = ["USES", "Census", "Churn", "churn"]

FIRST = 20  # clients that come before the census: they make what a process has once, such as gRPC's own threads
SETTLE_S = 5.0  # gRPC closes sockets, and ends threads, some time after a channel was closed
POLL_S = 0.05
Use = Callable[[str, Target], Awaitable[None]]


@dataclass(frozen=True)
class Census:
    """What a process has."""

    threads: int
    sockets: int
    rss_bytes: int


@dataclass(frozen=True)
class Churn:
    """A process before and after its clients, and the milliseconds that each took on average."""

    before: Census
    after: Census
    client_ms: float


async def churn(
    use: Callable[[], Awaitable[None]], count: int, first: int = FIRST, settle_s: float = SETTLE_S
) -> Churn:
    """Use clients one after the other.

    Args:
        use: Opens a client, uses it and closes it.
        count: How many there are between before and after.
        first: How many come before that.
        settle_s: What sockets and threads get to go away.
    """
    for _ in range(first):
        await use()
    before, began = await _census(), perf_counter()
    for _ in range(count):
        await use()
    ended = perf_counter()
    after, deadline = await _census(), monotonic() + settle_s
    while (after.threads > before.threads or after.sockets > before.sockets) and monotonic() < deadline:
        after = await _census()
    return Churn(before, after, (ended - began) * 1e3 / count)


async def _census() -> Census:
    await asyncio.sleep(POLL_S)
    pid = os.getpid()
    return Census(threads(pid), open_sockets(pid), resident_bytes(pid))


async def _model_client(server: str, target: Target) -> None:
    with pytriton.client.ModelClient(server, target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        check_double(client.infer_batch(INPUT=target.values)["OUTPUT"], target.values)


async def _futures_client(server: str, target: Target) -> None:
    with pytriton.client.FuturesModelClient(server, target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        check_double(client.infer_batch(INPUT=target.values).result()["OUTPUT"], target.values)


async def _asyncio_client(server: str, target: Target) -> None:
    async with pytriton.client.AsyncioModelClient(server, target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        check_double((await client.infer_batch(INPUT=target.values))["OUTPUT"], target.values)


async def _decoupled_client(server: str, target: Target) -> None:
    with pytriton.client.DecoupledModelClient(server, target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        for response in client.infer_batch(INPUT=target.values, COUNT=np.array([[2]], np.int32)):
            check_double(response["OUTPUT"], target.values)


async def _asyncio_decoupled_client(server: str, target: Target) -> None:
    kind = pytriton.client.AsyncioDecoupledModelClient
    async with kind(server, target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        async for response in client.infer_batch(INPUT=target.values, COUNT=np.array([[2]], np.int32)):
            check_double(response["OUTPUT"], target.values)


USES: dict[str, Use] = {
    "ModelClient": _model_client,
    "FuturesModelClient": _futures_client,
    "AsyncioModelClient": _asyncio_client,
    "DecoupledModelClient": _decoupled_client,
    "AsyncioDecoupledModelClient": _asyncio_decoupled_client,
}


def main() -> None:
    """Count once as the command line says."""
    parser = command_line("Open, use and close clients; prints JSON.")
    parser.add_argument("--client", choices=list(USES), default="ModelClient", help="the class (ModelClient)")
    parser.add_argument("--clients", type=int, default=1000, help="how many (1000)")
    chosen = parser.parse_args()
    server, target, use = url(chosen.protocol, target_of(chosen)), target_of(chosen), USES[chosen.client]
    print(json.dumps(asdict(asyncio.run(churn(lambda: use(server, target), chosen.clients)))))


if __name__ == "__main__":
    main()
