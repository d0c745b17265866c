"""Load through one ``AsyncioModelClient``, with many requests in flight.

Usage: ``python scripts/asyncio_load.py http --port 8000 --model double --in-flight 64`` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from time import perf_counter_ns, process_time

from caller import INIT_TIMEOUT_S, add_times, check_double, command_line, target_of, url
from tally import Result, Tally
from wire import Target

from pytriton.client import AsyncioModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["measure"]


async def measure(
    protocol: str, target: Target, in_flight: int, seconds: float, warmup_s: float
) -> tuple[Result, float]:
    """Keep as many requests in flight for ``warmup_s + seconds``.

    Returns:
        What was measured, and the CPU microseconds of this process per request.
    """
    values = target.values
    async with AsyncioModelClient(url(protocol, target), target.model, init_timeout_s=INIT_TIMEOUT_S) as client:
        check_double((await client.infer_batch(INPUT=values))["OUTPUT"], values)
        began_s, tally = process_time(), Tally(warmup_s, seconds)

        async def call_repeatedly() -> None:
            going = True
            while going:
                sent_ns, good = perf_counter_ns(), True
                try:
                    await client.infer_batch(INPUT=values)
                except PyTritonClientError:
                    good = False
                going = tally.add(sent_ns, good)

        await asyncio.gather(*(call_repeatedly() for _ in range(in_flight)))
        result, used_s = tally.result("AsyncioModelClient"), process_time() - began_s
        check_double((await client.infer_batch(INPUT=values))["OUTPUT"], values)
    return result, used_s / result.answered * 1e6


def main() -> None:
    """Measure once as the command line says."""
    parser = command_line("Drive one inference server through AsyncioModelClient; prints JSON.")
    add_times(parser)
    parser.add_argument("--in-flight", type=int, default=64, help="requests (64)")
    chosen = parser.parse_args()
    measuring = measure(chosen.protocol, target_of(chosen), chosen.in_flight, chosen.seconds, chosen.warmup)
    result, cpu_us = asyncio.run(measuring)
    print(json.dumps({**asdict(result), "client_cpu_us": cpu_us}))


if __name__ == "__main__":
    main()
