"""Load generators of others: wrk for HTTP, h2load (of nghttp2) for gRPC. Durations are whole seconds."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from tally import Result, quantiles
from wire import GRPC_PATH, HOST, TIMEOUT_S, LoadError, Target, grpc_request, http_body

__all__ = ["h2load", "has_h2load", "has_wrk", "read_h2load", "warmed", "wrk"]

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
_H2LOAD_REQUESTS = re.compile(r"^requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout$", re.M)
_H2LOAD_BODIES = re.compile(r"^traffic: .*\((\d+)\) data$", re.M)


def has_wrk() -> bool:
    return shutil.which("wrk") is not None


def has_h2load() -> bool:
    return shutil.which("h2load") is not None


def warmed(run: Callable[[float], Result], warmup_s: float, seconds: float) -> Result:
    """A run, after one to warm up, whose errors count too."""
    warm, measured = run(warmup_s), run(seconds)
    return replace(measured, answered=warm.answered + measured.answered, errors=warm.errors + measured.errors)


def wrk(target: Target, connections: int, seconds: float) -> Result:
    """Load over HTTP/1.1.

    Raises:
        LoadError: There was no good answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        body, json_bytes = http_body(target.values)
        Path(folder, "body").write_bytes(body)
        Path(folder, "script.lua").write_text(_WRK_SCRIPT.format(folder=folder, json_bytes=json_bytes))
        size = ["--threads=1", f"--connections={connections}", f"--duration={_whole(seconds)}s"]
        place = [f"--script={folder}/script.lua", f"http://{HOST}:{target.port}{target.path}"]
        subprocess.run(["wrk", *size, f"--timeout={TIMEOUT_S}s", *place], check=True, stdout=subprocess.DEVNULL)
        requests, duration_us, errors, *latencies_us = map(int, Path(folder, "result").read_text().split())
    if not requests:
        raise LoadError(f"wrk got no answer in {seconds} s, errors: {errors}")
    return Result("wrk", requests, requests, errors, requests / duration_us * 1e6, *latencies_us)


def h2load(target: Target, connections: int, seconds: float, answer_bytes: int) -> Result:
    """Load over gRPC.

    Args:
        target: Where to.
        connections: Each has one request in flight.
        seconds: Rounded up.
        answer_bytes: Length of the serialised answer, which must be the same each time.

    Raises:
        LoadError: There was no good answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        message, log = grpc_request(target), Path(folder, "log")
        Path(folder, "body").write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        size = [f"--clients={connections}", "--max-concurrent-streams=1", f"--duration={_whole(seconds)}"]
        headers = ["--header=content-type: application/grpc", "--header=te: trailers"]
        place = [f"--data={folder}/body", f"--log-file={log}", f"http://{HOST}:{target.port}{GRPC_PATH}"]
        ran = subprocess.run(["h2load", *size, *headers, *place], check=True, capture_output=True, text=True)
        return read_h2load(ran.stdout, log.read_text(), _whole(seconds), answer_bytes)


def read_h2load(printed: str, log: str, seconds: float, answer_bytes: int) -> Result:
    """The result of a run of h2load.

    gRPC reports errors in trailers, which h2load disregards: a request counts as failed when its answer had no body.
    The requests under way at the end may hide as many such errors as there are connections.

    Args:
        printed: Its standard output.
        log: Its log: start, status and latency in microseconds of each request, a line each.
        seconds: Duration of the run.
        answer_bytes: Length of a serialised answer.

    Raises:
        LoadError: There was no good answer, or this is not h2load's output.
    """
    counts, bodies = _H2LOAD_REQUESTS.search(printed), _H2LOAD_BODIES.search(printed)
    if not counts or not bodies:
        raise LoadError(f"h2load printed {printed!r}")
    succeeded, *failed = map(int, counts.groups())
    good = min(succeeded, int(bodies[1]) // (5 + answer_bytes))  # each body is a gRPC message: 5 bytes, then the answer
    errors = sum(failed) + succeeded - good
    if not good:
        raise LoadError(f"h2load got no answer in {seconds} s, errors: {errors}")
    latencies_us = np.array(log.split(), np.int64).reshape(-1, 3)[:, 2]
    return Result("h2load", good, good, errors, good / seconds, *quantiles(latencies_us))


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))
