"""The load generator: one program for every kind of load on a server of this machine; prints one line of JSON.

    python scripts/load.py server http --port 8000 --workload "1-4 rows, ids" --connections 16 --seconds 10

``server`` costs the client as little as possible, to show the server: a closed loop over keep-alive connections, of
requests that were encoded before. HTTP over several connections is wrk's where it is installed (about 8 us of a core
per request) and an epoll loop of ours otherwise (14 us); gRPC is ours (20 us), since no program varies its requests.
wrk corrects its percentiles for coordinated omission. Responses are checked before and after the load. The other
kinds call through clients (clients.py), and ``checked`` checks every answer until SIGTERM comes (checked.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from connections import TIMEOUT_S, connect, drive
from payloads import HOST, ID, MODEL, WORKLOADS, LoadError, Workload, check_outputs, http_request
from tally import Result, Tally

__all__ = ["infer_once", "load", "warmed", "wrk"]

WRK = """
local folder, count, ids = "{folder}", {count}, {ids}
local requests, n = {{}}, 0
for i = 1, count do
  local file = assert(io.open(folder .. "/" .. i, "rb"))
  local text = file:read("*a")
  file:close()
  local at = ids and text:find("{id}", 1, true)
  requests[i] = at and {{text:sub(1, at - 1), text:sub(at + {id_bytes})}} or text
end
function request()
  n = n + 1
  local each = requests[n % count + 1]
  return ids and each[1] .. string.format("%08d", n) .. each[2] or each
end
function done(summary, latency)
  local errors, file = summary.errors, assert(io.open(folder .. "/result", "w"))
  file:write(string.format("%d %d %d %d %d %d", summary.requests - errors.status, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99)))
  file:close()
end
"""
WRK_SAME = """
local text = requests[1]
local at = text:find("\\r\\n\\r\\n", 1, true)
wrk.method = "POST"
wrk.headers["Inference-Header-Content-Length"] = text:match("Inference%-Header%-Content%-Length: (%d+)")
wrk.body = text:sub(at + 4)
request = wrk.request
"""


def load(
    protocol: str,
    port: int,
    workload: Workload,
    connections: int,
    seconds: float,
    warmup_s: float = 1,
    copies: bool = False,
) -> Result:
    """Keep one request in flight on each connection for ``warmup_s + seconds``; wrk rounds both up to whole seconds.

    Args:
        protocol: ``http`` or ``grpc``.
        port: The server's port.
        workload: The requests.
        connections: Their number.
        seconds: The duration of the measurement.
        warmup_s: The duration of the same load before.
        copies: Whether the server copies inputs to outputs instead of doubling them.

    Raises:
        LoadError: A response before or after the load is wrong, or a connection broke.
    """
    _check(protocol, port, workload, copies)
    if protocol == "http" and connections > 1 and shutil.which("wrk"):
        result = warmed(partial(wrk, port, workload, connections), warmup_s, seconds)
    else:
        tally = Tally(warmup_s, seconds)
        drive(lambda: connect(protocol, port, workload), connections, tally)
        result = tally.result("ours")
    _check(protocol, port, workload, copies)
    return result


def _check(protocol: str, port: int, workload: Workload, copies: bool) -> None:
    for rows in workload.rows:
        check_outputs(infer_once(protocol, port, replace(workload, rows=(rows,))), workload.outputs(rows, copies))


def infer_once(protocol: str, port: int, workload: Workload) -> dict[str, bytes]:
    """The outputs of one request over a connection of its own.

    Raises:
        LoadError: The answer is an error.
        OSError: No server listens there.
    """
    with closing(connect(protocol, port, workload)) as connection:
        return connection.infer()


def warmed(run: Callable[[float], Result], warmup_s: float, seconds: float) -> Result:
    """A run after a warm-up whose errors count too; raises LoadError if the run had no good answer."""
    warm, measured = run(warmup_s), run(seconds)
    if not measured.requests:
        raise LoadError(f"{measured.generator} got no answer in {seconds} s, errors: {measured.errors}")
    return replace(measured, answered=warm.answered + measured.answered, errors=warm.errors + measured.errors)


def wrk(port: int, workload: Workload, connections: int, seconds: float) -> Result:
    """Load over HTTP/1.1 by wrk, with the requests in rotation."""
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(workload.rows, 1):
            Path(folder, str(number)).write_bytes(http_request(port, workload, rows))
        same = len(workload.rows) == 1 and not workload.ids  # wrk then encodes the request once, however large it is
        script = WRK.format(
            folder=folder, count=len(workload.rows), ids=str(workload.ids).lower(), id=ID.decode(), id_bytes=len(ID)
        )
        path = f"/v2/models/{workload.model}/infer"
        Path(folder, "script.lua").write_text(script + (WRK_SAME if same else ""))
        size = ["--threads=1", f"--connections={connections}", f"--duration={max(1, math.ceil(seconds))}s"]
        place = [f"--script={folder}/script.lua", f"http://{HOST}:{port}{path}"]
        subprocess.run(["wrk", *size, f"--timeout={TIMEOUT_S}s", *place], check=True, stdout=subprocess.DEVNULL)
        requests, duration_us, errors, *latencies_us = map(int, Path(folder, "result").read_text().split())
    return Result("wrk", requests, requests, errors, requests / duration_us * 1e6, *latencies_us)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["server", "blocking", "asyncio", "stream", "churn", "inprocess", "checked"]
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default=MODEL, help="that the clients call (double)")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="64 B", help="of server (64 B)")
    parser.add_argument("--copies", type=int, default=0, help="1: the server copies inputs instead of doubling them")
    parser.add_argument("--connections", type=int, default=1, help="or requests in flight of asyncio")
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement (1)")
    parser.add_argument("--client", default="", help="of stream: pytriton or tritonclient; of churn: the class")
    parser.add_argument("--count", type=int, default=500, help="responses of a stream, clients of churn (500)")
    parser.add_argument("--memory-requests", type=int, default=0, help="in process, while memory is looked at (0)")
    parser.add_argument("--calls", default="blocking", help="of checked: blocking, asyncio, streams, stopped or bad")
    parser.add_argument("--timeout", type=float, default=5, help="of checked calls, in seconds (5)")
    return parser.parse_args()


def main() -> None:
    """Run one load; the modules of other kinds are imported only here, as the peer's interpreter lacks some."""
    chosen = _parse()
    if chosen.kind == "checked":
        import checked

        return checked.run(chosen.calls, chosen.protocol, chosen.port, chosen.timeout)
    found: Any
    if chosen.kind == "server":
        workload = WORKLOADS[chosen.workload]
        times = (chosen.seconds, chosen.warmup)
        found = asdict(load(chosen.protocol, chosen.port, workload, chosen.connections, *times, bool(chosen.copies)))
    else:
        import clients

        with ExitStack() as stack:
            found = getattr(clients, f"run_{chosen.kind}")(chosen, stack)
            found = asyncio.run(found) if asyncio.iscoroutine(found) else found
    print(json.dumps(found))
    return None


if __name__ == "__main__":
    main()
