"""Calls a server that is killed again and again, and checks every answer.

Prints one line of JSON a second: what happened since the last one. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np
from systems import MODEL
from tensors import Floats
from wire import HOST

from pytriton.client import AsyncioModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError

TIMEOUT_S = 5.0
LIMIT_S = 2 * TIMEOUT_S + 1.0
"""A first call waits for the model, too."""
IN_FLIGHT = 8
PAUSE_S = 0.02
REPORT_S = 1.0
SIZES = [16, 4 << 10, 64 << 10]


class Calls:
    """Counts calls, and says what they came to."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._longest_s = 0.0
        self._lock = threading.Lock()

    def count(self, what: str, began: float) -> None:
        """Count a call that began at a time in :func:`time.monotonic` seconds."""
        with self._lock:
            self._counts[what] += 1
            self._longest_s = max(self._longest_s, time.monotonic() - began)

    def report(self) -> None:
        """Print what was counted since the last report."""
        with self._lock:
            print(json.dumps({"counts": self._counts, "longest_s": self._longest_s}), flush=True)
            self._counts.clear()
            self._longest_s = 0.0


def inputs() -> Floats:
    """A batch that no other call has."""
    return np.full((random.randint(1, 4), random.choice(SIZES)), random.random(), np.float32)


def call(url: str, calls: Calls) -> None:
    """Call with one synchronous client, for ever."""
    with ModelClient(url, MODEL, init_timeout_s=TIMEOUT_S, inference_timeout_s=TIMEOUT_S) as client:
        while True:
            x, began = inputs(), time.monotonic()
            try:
                calls.count(verdict(x, client.infer_batch(x)["OUTPUT"]), began)
            except PyTritonClientError as error:
                calls.count(type(error).__name__, began)
                time.sleep(PAUSE_S)


async def call_at_once(url: str, calls: Calls) -> None:
    """Call with one asynchronous client, several times at once, for ever."""

    async def repeat(client: AsyncioModelClient) -> None:
        while True:
            x, began = inputs(), time.monotonic()
            try:
                calls.count(verdict(x, (await client.infer_batch(x))["OUTPUT"]), began)
            except PyTritonClientError as error:
                calls.count(type(error).__name__, began)
                await asyncio.sleep(PAUSE_S)

    async with AsyncioModelClient(url, MODEL, init_timeout_s=TIMEOUT_S, inference_timeout_s=TIMEOUT_S) as client:
        await asyncio.gather(*[repeat(client) for _ in range(IN_FLIGHT)])


def verdict(x: Floats, answer: Floats) -> str:
    return "right" if np.array_equal(answer, 2 * x) else "wrong"


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    calls = Calls()

    def report() -> None:
        while True:
            time.sleep(REPORT_S)
            calls.report()

    def leave(*_: object) -> None:
        calls.report()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=report, daemon=True).start()
    if kind == "asyncio":
        asyncio.run(call_at_once(f"http://{HOST}:{port}", calls))
    else:
        call(f"{kind}://{HOST}:{port}", calls)


if __name__ == "__main__":
    main()
