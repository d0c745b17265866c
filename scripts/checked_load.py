"""Calls a server and checks every answer, for as long as it runs, whatever becomes of the server.

Usage: ``python scripts/checked_load.py asyncio http --port 8000`` prints one line of JSON a second: how many calls came
to what since the line before. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import select
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from bad_requests import make_bad_requests
from caller import url
from systems import MODEL, STREAM
from tensors import Floats
from wire import Target

from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError

__all__ = ["KINDS", "Calls"]

IN_FLIGHT = 8
PAUSE_S = 0.02
REPORT_S = 1.0
SIZES = [16, 4 << 10, 64 << 10]
RESPONSES = 20  # to each request, as it has to be the same for those that the server merges
STOPPED_SHARE = 0.2


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds (5)")
    chosen = parser.parse_args()
    calls = Calls(chosen.timeout)

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
    KINDS[chosen.kind](url(chosen.protocol, Target(chosen.port, MODEL)), calls)


if __name__ == "__main__":
    main()
