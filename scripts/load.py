"""Load for one inference server on this machine: a closed loop of requests over N keep-alive connections.

The model has a float32 input ``INPUT`` and a float32 output ``OUTPUT`` of one shape. Requests are built once, and
answers are looked into only before and after the load, to take little of the cores that generator and server share:

    HTTP, 1 connection    blocking socket          HTTP, more    wrk if installed, else one epoll loop
    gRPC, 1 connection    blocking grpcio calls    gRPC, more    asyncio calls of grpcio

A request takes the generator about 8 us of a core with wrk, 14 us with the epoll loop and 0.2 ms with grpcio, which
limits what can be seen over many gRPC connections. wrk corrects its percentiles for coordinated omission: a latency of
several mean intervals counts several times.

Usage: ``python scripts/load.py http --port 8000 --model m --connections 16 --seconds 10`` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import selectors
import shutil
import socket
import struct
import subprocess
import tempfile
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter_ns

import grpc
import numpy as np
from wire import (
    HOST,
    TIMEOUT_S,
    Connection,
    Floats,
    LoadError,
    Target,
    grpc_output,
    grpc_request,
    http_body,
    http_request,
)

__all__ = ["LoadError", "Result", "Target", "double", "load"]

_GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_GRPC_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # or all channels to one address share one connection
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
_WRK_SCRIPT = """
wrk.method = "POST"
wrk.headers["Inference-Header-Content-Length"] = "{json_bytes}"
local body = assert(io.open("{folder}/body", "rb"))
wrk.body = body:read("*a")
body:close()
function done(summary, latency)
  local errors, file = summary.errors, assert(io.open("{folder}/result", "w"))
  file:write(string.format("%d %d %d %d %d %d", summary.requests - errors.status, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99)))
  file:close()
end
"""


@dataclass(frozen=True)
class Result:
    """Requests answered well in the time measured, their latencies in microseconds, and errors of the whole run."""

    generator: str
    requests: int
    errors: int
    requests_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float


def double(values: Floats) -> Floats:
    """The model that a load expects, unless told otherwise."""
    return 2 * values


class _Tally:
    """Latencies of the requests that end in the ``seconds`` after the warm-up, and the number of all that failed."""

    def __init__(self, warmup_s: float, seconds: float) -> None:
        self._seconds, self._errors, self._latencies_ns = seconds, 0, array("q")
        self._begin_ns = perf_counter_ns() + int(warmup_s * 1e9)
        self._end_ns = self._begin_ns + int(seconds * 1e9)

    def add(self, sent_ns: int, good: bool) -> bool:
        now_ns = perf_counter_ns()
        if good and self._begin_ns <= now_ns < self._end_ns:
            self._latencies_ns.append(now_ns - sent_ns)
        self._errors += not good
        return now_ns < self._end_ns

    def result(self, generator: str) -> Result:
        count = len(self._latencies_ns)
        if not count:
            raise LoadError(f"no request was answered well in {self._seconds} s, errors: {self._errors}")
        quantiles = np.percentile(self._latencies_ns, [50, 90, 99], method="inverted_cdf") / 1000
        return Result(generator, count, self._errors, count / self._seconds, *quantiles.tolist())


def load(
    protocol: str,
    target: Target,
    connections: int,
    seconds: float,
    warmup_s: float = 1,
    model: Callable[[Floats], Floats] = double,
) -> Result:
    """Keep one request in flight on each connection for ``warmup_s + seconds`` (for wrk: each rounded up to 1 s).

    Raises:
        LoadError: An answer before or after the load is not ``model(input)``, or a connection broke.
    """
    infer, drive = {"http": (_infer_http, _drive_http), "grpc": (_infer_grpc, _drive_grpc)}[protocol]
    _verify(infer(target), model(target.values))
    result = drive(target, connections, seconds, warmup_s)
    _verify(infer(target), model(target.values))
    return result


def _verify(output: Floats, expected: Floats) -> None:
    if not np.array_equal(output, expected.ravel()):
        raise LoadError(f"wrong output {output[:4]}, expected {expected.ravel()[:4]}")


def _connect(target: Target) -> socket.socket:
    stream = socket.create_connection((HOST, target.port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A time-out of Python's own would cost a poll before each read.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    return stream


def _connection(target: Target, stream: socket.socket) -> Connection:
    return Connection(stream, http_request(target), 64 * 1024 + 4 * target.floats)


def _infer_http(target: Target) -> Floats:
    with _connect(target) as stream:
        connection = _connection(target, stream)
        connection.exchange()
        return connection.output()


def _drive_http(target: Target, connections: int, seconds: float, warmup_s: float) -> Result:
    if connections > 1 and shutil.which("wrk"):
        warm = _wrk(target, connections, warmup_s)
        measured = _wrk(target, connections, seconds)
        return replace(measured, errors=warm.errors + measured.errors)
    tally = _Tally(warmup_s, seconds)
    if connections > 1:
        _send_selecting(target, connections, tally)
        return tally.result("epoll")
    with _connect(target) as stream:
        connection = _connection(target, stream)
        going = True
        while going:
            good = connection.exchange()
            going = tally.add(connection.sent_ns, good)
    return tally.result("socket")


def _wrk(target: Target, connections: int, seconds: float) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        body, json_bytes = http_body(target.values)
        Path(folder, "body").write_bytes(body)
        Path(folder, "script.lua").write_text(_WRK_SCRIPT.format(folder=folder, json_bytes=json_bytes))
        size = ["--threads=1", f"--connections={connections}", f"--duration={max(1, math.ceil(seconds))}s"]
        place = [f"--script={folder}/script.lua", f"http://{HOST}:{target.port}{target.path}"]
        subprocess.run(["wrk", *size, f"--timeout={TIMEOUT_S}s", *place], check=True, stdout=subprocess.DEVNULL)
        requests, duration_us, errors, *quantiles = map(int, Path(folder, "result").read_text().split())
    if not requests:
        raise LoadError(f"wrk got no answer in {seconds} s, errors: {errors}")
    return Result("wrk", requests, errors, requests / duration_us * 1e6, *quantiles)


def _send_selecting(target: Target, connections: int, tally: _Tally) -> None:
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as streams:
        for _ in range(connections):
            stream = streams.enter_context(_connect(target))
            stream.setblocking(False)
            connection = _connection(target, stream)
            connection.start()
            selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        going = True
        while going:
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise LoadError(f"no answer in {TIMEOUT_S} s")
            for key, events in ready:
                connection = key.data
                if events & selectors.EVENT_WRITE:
                    connection.send()
                if events & selectors.EVENT_READ and connection.receive():
                    going = tally.add(connection.sent_ns, connection.status == 200)
                    connection.start()
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
                if wanted != key.events:
                    selector.modify(key.fileobj, wanted, connection)


def _infer_grpc(target: Target) -> Floats:
    with grpc.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
        answer = channel.unary_unary(_GRPC_METHOD)(grpc_request(target), timeout=TIMEOUT_S)
    return grpc_output(answer)


def _drive_grpc(target: Target, connections: int, seconds: float, warmup_s: float) -> Result:
    tally = _Tally(warmup_s, seconds)
    if connections > 1:
        asyncio.run(_call_concurrently(target, connections, tally))
    else:
        _call_blocking(target, tally)
    return tally.result("grpcio")


def _call_blocking(target: Target, tally: _Tally) -> None:
    request = grpc_request(target)
    with grpc.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
        infer = channel.unary_unary(_GRPC_METHOD)
        going = True
        while going:
            sent_ns, good = perf_counter_ns(), True
            try:
                infer(request, timeout=TIMEOUT_S)
            except grpc.RpcError:
                good = False
            going = tally.add(sent_ns, good)


async def _call_concurrently(target: Target, connections: int, tally: _Tally) -> None:
    request = grpc_request(target)

    async def call_repeatedly() -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
            infer = channel.unary_unary(_GRPC_METHOD)
            going = True
            while going:
                sent_ns, good = perf_counter_ns(), True
                try:
                    await infer(request, timeout=TIMEOUT_S)
                except grpc.RpcError:
                    good = False
                going = tally.add(sent_ns, good)

    await asyncio.gather(*(call_repeatedly() for _ in range(connections)))


def main() -> None:
    """Measure once as the command line says."""
    parser = argparse.ArgumentParser(description="Drive one inference server on this machine; prints JSON.")
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--floats", type=int, default=16, help="values per request; 262144 are 1 MiB")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement")
    chosen = parser.parse_args()
    target = Target(chosen.port, chosen.model, chosen.floats)
    print(json.dumps(asdict(load(chosen.protocol, target, chosen.connections, chosen.seconds, chosen.warmup))))


if __name__ == "__main__":
    main()
