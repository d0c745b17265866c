"""One round of the server in the caller's process, beside the same callable behind HTTP and gRPC."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from client_programs import run_client
from processes import end_with_parent
from rounds import LOAD_GRACE_S, Case, Round, Timing, measure_load, stop
from systems import MODEL, BenchError, Host, System

__all__ = ["measure_inprocess"]

_LOAD = Path(__file__).with_name("inprocess_load.py")
CASES = [Case("http", 1), Case("grpc", 1), Case("http", 1, 1 << 18), Case("http", 16)]
CLIENT = "ModelClient, http 1 x 64 B"
ASYNCIO_CLIENT = "AsyncioModelClient, http 16 x 64 B"
REQUESTS_PER_S = 2000  # at least, of those over which memory is looked at


def measure_inprocess(
    system: System, number: int, timing: Timing, requests: int, folder: Path, say: Callable[[str], None]
) -> Round:
    """Run a round.

    Args:
        system: Ours.
        number: Of the round, from 1.
        timing: Of the loads.
        requests: Over which memory is looked at; 0: it is not.
        folder: An empty one for files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured. What fails is a problem of the round, and ends it.
    """
    result = Round(system.name, number)
    try:
        with Host(system, folder) as host:
            host.wait_first_answer()
            for case in CASES:
                measure_load(host, case, timing, result, say)
            result.values[ASYNCIO_CLIENT] = _client(host, system, timing)
            result.values |= _load(host, system, timing, requests)
            stop(host, result)
        result.values["in process / HTTP"] = _compare(result.values)
        say(f"round {number}, {system.name}, in process: {result.values['in process / HTTP']}")
    except BenchError as error:
        result.problems.append(str(error))
    return result


def _client(host: Host, system: System, timing: Timing) -> dict[str, float]:
    """What a program in Python waits for answers over HTTP."""
    timeout_s = timing.seconds + timing.warmup_s + LOAD_GRACE_S
    times = {"seconds": timing.seconds, "warmup": timing.warmup_s}
    found = run_client(host, system, "asyncio_load.py", "http", MODEL, timeout_s, **times, in_flight=16)
    return {"requests/s": found["requests_per_s"], "p50 us": found["p50_us"], "p99 us": found["p99_us"]}


def _load(host: Host, system: System, timing: Timing, requests: int) -> dict[str, dict[str, float]]:
    command = [system.command[0], str(_LOAD), f"--port={host.target('http').port}", f"--model={MODEL}"]
    command += [f"--seconds={timing.seconds}", f"--warmup={timing.warmup_s}"]
    try:
        ran = subprocess.run(
            [*command, f"--memory-requests={requests}"],
            env=system.environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=7 * (timing.seconds + timing.warmup_s) + requests / REQUESTS_PER_S + LOAD_GRACE_S,
            preexec_fn=end_with_parent,
        )
    except subprocess.CalledProcessError as error:
        raise BenchError(f"the load in process failed:\n{error.stderr}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"the load in process did not end in {error.timeout:.0f} s") from error
    found: dict[str, dict[str, float]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _compare(values: dict[str, dict[str, float]]) -> dict[str, float]:
    return {
        "64 B p50": values["in process 1 x 64 B"]["p50 us"] / values["http 1 x 64 B"]["p50 us"],
        "64 B p50, over ModelClient": values["in process 1 x 64 B"]["p50 us"] / values[CLIENT]["p50 us"],
        "64 B p50, both ModelClient": values["ModelClient, in process 1 x 64 B"]["p50 us"] / values[CLIENT]["p50 us"],
        "1 MiB p50": values["in process 1 x 1 MiB"]["p50 us"] / values["http 1 x 1 MiB"]["p50 us"],
        "16 in flight requests/s": values["in process 16 x 64 B"]["requests/s"]
        / values["http 16 x 64 B"]["requests/s"],
        "16 in flight requests/s, over AsyncioModelClient": values["in process 16 x 64 B"]["requests/s"]
        / values[ASYNCIO_CLIENT]["requests/s"],
    }
