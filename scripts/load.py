"""The load generator: keeps one request in flight on each of some connections to a server of this machine.

    python scripts/load.py http --port 8000 --workload "1-4 rows, ids" --connections 16 --seconds 10

It costs the cores as little as possible, to show the server: keep-alive connections, and requests that were encoded
before. HTTP over several connections is wrk's where it is installed (about 8 us of a core per request) and an epoll
loop of ours otherwise (14 us); gRPC is ours (20 us), since no program varies its requests. wrk corrects its percentiles
for coordinated omission. Responses are checked before and after the load. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import selectors
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from connections import PROTOCOLS, TIMEOUT_S, HttpConnection, check, connect
from numpy.typing import ArrayLike
from payloads import HOST, WORKLOADS, LoadError, Workload

__all__ = ["Tally", "Values", "drive", "figures", "h2load", "load", "quantiles", "warmed", "whole_requests", "wrk"]

WRK_SCRIPT = Path(__file__).with_name("wrk.lua")
Values = dict[str, float]


def quantiles(latencies: ArrayLike) -> tuple[float, float]:
    """The 50th and the 99th percentile, each a latency that occurred."""
    p50, p99 = np.percentile(latencies, [50, 99], method="inverted_cdf")
    return float(p50), float(p99)


def figures(latencies_ns: Sequence[int], seconds: float, errors: int, answered: int) -> Values:
    """The figures of a load.

    Args:
        latencies_ns: Of the requests that were answered well in the time measured.
        seconds: The time measured.
        errors: Requests that failed in the whole run.
        answered: Requests answered well in the whole run, warm-up included: what the CPU time was spent on.

    Raises:
        LoadError: No request was answered well in the time measured.
    """
    if not len(latencies_ns):
        raise LoadError(f"no request was answered well in {seconds} s, errors: {errors}")
    p50_ns, p99_ns = quantiles(latencies_ns)
    times = {"p50 us": p50_ns / 1000, "p99 us": p99_ns / 1000}
    return {"requests/s": len(latencies_ns) / seconds, **times, "errors": errors, "answered": answered}


class Tally:
    """Latencies of the requests that end in the ``seconds`` after the warm-up, and the number of all that failed.

    If no request ends in that time, those in flight at its end count, and the time until they have ended.
    """

    def __init__(self, warmup_s: float, seconds: float) -> None:
        self._seconds, self._answered, self._errors, self._latencies_ns = seconds, 0, 0, array("q")
        self._begin_ns = perf_counter_ns() + int(warmup_s * 1e9)
        self._end_ns, self._late = self._begin_ns + int(seconds * 1e9), 0

    def add(self, sent_ns: int, good: bool) -> bool:
        """Count a request that ends now; false when the time is over."""
        now_ns = perf_counter_ns()
        self._answered += good
        self._errors += not good
        if now_ns < self._end_ns:
            if good and now_ns >= self._begin_ns:
                self._latencies_ns.append(now_ns - sent_ns)
            return True
        if good and len(self._latencies_ns) == self._late:
            self._latencies_ns.append(now_ns - sent_ns)
            self._seconds, self._late = (now_ns - self._begin_ns) / 1e9, self._late + 1
        return False

    def figures(self) -> Values:
        """What was measured; raises LoadError if nothing was."""
        return figures(self._latencies_ns, self._seconds, self._errors, self._answered)


def load(
    protocol: str,
    port: int,
    workload: Workload,
    connections: int,
    seconds: float,
    warmup_s: float = 1,
    copies: bool = False,
) -> Values:
    """Keep one request in flight on each connection for ``warmup_s + seconds``; wrk rounds both up to whole seconds.

    Args:
        protocol: One of PROTOCOLS.
        port: The server's port.
        workload: The requests.
        connections: Their number.
        seconds: The duration of the measurement.
        warmup_s: The duration of the same load before.
        copies: Whether the server copies inputs to outputs instead of doubling them.

    Raises:
        LoadError: A response before or after the load is wrong, or a connection broke.
    """
    check(protocol, port, workload, copies)
    if PROTOCOLS[protocol].connection is HttpConnection and connections > 1 and shutil.which("wrk"):
        requests = [PROTOCOLS[protocol].encode(port, workload, rows) for rows in workload.rows]
        found = warmed(partial(wrk, port, requests, connections), warmup_s, seconds)
    else:
        found = drive(lambda: connect(protocol, port, workload), connections, lambda: Tally(warmup_s, seconds))
    check(protocol, port, workload, copies)
    return found


def drive(open_connection: Callable[[], HttpConnection], connections: int, begin: Callable[[], Tally]) -> Values:
    """Keep one request in flight on each connection until the time of the tally is over, then wait for the last ones.

    A connection that is closed with a request in flight cancels the request. Triton 2.51 bears that badly over gRPC: it
    may crash, or wait at its exit for a request that it has lost.
    """
    with ExitStack() as closing:
        opened = [open_connection() for _ in range(connections)]
        for each in opened:
            closing.callback(each.close)
        tally, going = begin(), True
        if connections == 1:
            while going:
                opened[0].exchange()
                going = tally.add(opened[0].sent_ns, opened[0].good)
        else:
            _drive_all(opened, tally)
        return tally.figures()


def _drive_all(connections: Sequence[HttpConnection], tally: Tally) -> None:
    with selectors.DefaultSelector() as selector:
        for each in connections:
            each.socket.setblocking(False)
            each.start()
            selector.register(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
        in_flight, going = len(connections), True
        while in_flight:
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise LoadError(f"no answer in {TIMEOUT_S} s")
            for key, events in ready:
                connection: HttpConnection = key.data
                if events & selectors.EVENT_WRITE and connection.wants_write:
                    connection.send()
                if events & selectors.EVENT_READ and connection.receive():
                    going = tally.add(connection.sent_ns, connection.good)
                    if going:
                        connection.start()
                    else:
                        in_flight -= 1
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_write else 0)
                if wanted != key.events:
                    selector.modify(key.fileobj, wanted, connection)


def warmed(run: Callable[[float], Values], warmup_s: float, seconds: float) -> Values:
    """A run after a warm-up whose errors count too; raises LoadError if the run had no good answer."""
    warm, found = run(warmup_s), run(seconds)
    if not found["answered"]:
        raise LoadError(f"no request was answered well in {seconds} s, errors: {found['errors']:.0f}")
    return {**found, **{name: warm[name] + found[name] for name in ("errors", "answered")}}


def wrk(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Values:
    """Load over HTTP/1.1 by wrk, with whole requests in rotation."""
    with tempfile.TemporaryDirectory() as folder:
        for number, request in enumerate(requests, 1):
            Path(folder, str(number)).write_bytes(request)
        size = ["--threads=1", f"--connections={connections}", f"--duration={max(1, math.ceil(seconds))}s"]
        command = ["wrk", *size, f"--timeout={TIMEOUT_S}s", f"--script={WRK_SCRIPT}", f"http://{HOST}:{port}"]
        environment = {**os.environ, "WRK_REQUESTS": folder}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        answered, duration_us, errors, p50_us, p99_us = map(int, Path(folder, "result").read_text().split())
    times = {"p50 us": p50_us, "p99 us": p99_us}
    return {"requests/s": answered / duration_us * 1e6, **times, "errors": errors, "answered": answered}


def whole_requests(port: int, requests: Sequence[bytes], connections: int, warmup_s: float, seconds: float) -> Values:
    """Load over HTTP/1.1 with whole requests in rotation: by wrk over several connections, if it is installed."""
    if connections > 1 and shutil.which("wrk"):
        return warmed(partial(wrk, port, requests, connections), warmup_s, seconds)
    return drive(partial(HttpConnection, port, requests), connections, lambda: Tally(warmup_s, seconds))


def h2load(port: int, method: str, message: bytes, connections: int, calls: int, seconds: float) -> Values:
    """Load over gRPC by h2load, with one message in ``calls`` calls at a time on each connection.

    It sees the status of HTTP and not that of gRPC.
    """
    with tempfile.TemporaryDirectory() as folder:
        data, times = Path(folder, "data"), Path(folder, "times")
        data.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        size = [f"--clients={connections}", f"--max-concurrent-streams={calls}", f"--duration={math.ceil(seconds)}"]
        heads = ["--header=content-type: application/grpc", "--header=te: trailers"]
        url = f"http://{HOST}:{port}/inference.GRPCInferenceService/{method}"
        command = ["h2load", *size, *heads, f"--data={data}", f"--log-file={times}", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = [line.split() for line in times.read_text().splitlines()]
    latencies_ns = [1000 * int(latency_us) for _, status, latency_us in lines if status == "200"]
    return figures(latencies_ns, math.ceil(seconds), len(lines) - len(latencies_ns), len(latencies_ns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workload", choices=WORKLOADS, default="64 B", help="what is sent (64 B)")
    parser.add_argument("--copies", type=int, default=0, help="1: the server copies inputs instead of doubling them")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement (1)")
    chosen = vars(parser.parse_args())
    chosen |= {"workload": WORKLOADS[chosen["workload"]], "warmup_s": chosen.pop("warmup")}
    print(json.dumps(load(**chosen)))


if __name__ == "__main__":
    main()
