"""One round of worker processes: what they gain, cost and lose, each beside what they are compared with."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rounds import Case, Round, Timing, read_load, start_load, stop
from systems import MODEL, BenchError, Host, System
from tally import Result

__all__ = ["measure_workers"]

LOOPS = 100_000  # of Python, which take 1 to 3 ms
ONE, SEVERAL = Case("http", 1), Case("http", 16)
POLL_S = 0.005
RESTART_TIMEOUT_S = 60.0
READY = "is ready after"


def measure_workers(system: System, number: int, timing: Timing, folder: Path, say: Callable[[str], None]) -> Round:
    """Run a round.

    Args:
        system: Ours.
        number: Of the round, from 1.
        timing: Of the loads.
        folder: An empty one for the hosts' files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured. What fails is a problem of the round, and ends it.
    """
    result = Round(system.name, number)
    forms = _Forms(system, timing, folder, result)
    try:
        busy = result.values["a callable of Python alone"] = {}
        for workers in (1, 2):
            busy[f"{workers} workers requests/s"] = forms.load(SEVERAL, workers, loops=LOOPS).requests_per_s
        busy["2 workers / 1"] = busy["2 workers requests/s"] / busy["1 workers requests/s"]
        say(f"round {number}, {system.name}, two workers: {busy['2 workers / 1']:.2f} times one")
        trivial = result.values["a trivial callable"] = {}
        for name, workers in (("thread", 0), ("1 worker", 1)):
            for case in (ONE, SEVERAL):
                trivial[f"{name} {case.title} requests/s"] = forms.load(case, workers).requests_per_s
        beside = result.values["beside a busy thread of the hosting process"] = {}
        for name, workers in (("thread", 0), ("1 worker", 1)):
            for state, is_busy in (("quiet", False), ("busy", True)):
                beside[f"{name} {state} p50 us"] = forms.load(ONE, workers, busy=is_busy).p50_us
        result.values["one of two workers is killed"] = forms.kill()
        say(f"round {number}, {system.name}, workers: done")
    except BenchError as error:
        result.problems.append(str(error))
    return result


class _Forms:
    """Hosts of one round, a new one for each measurement."""

    def __init__(self, system: System, timing: Timing, folder: Path, result: Round) -> None:
        self._system = replace(system, command=[system.command[0], str(Path(__file__).parent / "hosts" / "workers.py")])
        self._timing = timing
        self._folder = folder
        self._result = result
        self._hosts = 0

    def load(self, case: Case, workers: int, loops: int = 0, busy: bool = False) -> Result:
        with self._host(workers, loops, busy) as host:
            host.wait_first_answer()
            load = start_load(host, case, self._timing.seconds, self._timing.warmup_s)
            found = read_load(host, case, load)
            if found.errors:
                self._result.problems.append(f"{workers} workers, {case.title}: {found.errors} errors")
            stop(host, self._result)
        return found

    def kill(self) -> dict[str, float]:
        """Kill one of two workers under load."""
        with self._host(2, LOOPS, False) as host:
            host.wait_first_answer()
            load = start_load(host, SEVERAL, 2 * self._timing.seconds, 0)
            time.sleep(self._timing.seconds)
            before = host.tail().count(READY)
            killed = time.perf_counter()
            os.kill(_workers(host)[0], signal.SIGKILL)
            while host.tail().count(READY) == before and time.perf_counter() < killed + RESTART_TIMEOUT_S:
                time.sleep(POLL_S)
            restart_s = time.perf_counter() - killed
            found = read_load(host, SEVERAL, load)
            stop(host, self._result)
        return {"failed requests": found.errors, "restart s": restart_s, "requests/s": found.requests_per_s}

    def _host(self, workers: int, loops: int, busy: bool) -> Host:
        self._hosts += 1
        chosen = json.dumps({"workers": workers, "loops": loops, "busy": busy})
        system = replace(self._system, environment={**self._system.environment, "BENCH_WORKERS": chosen})
        return Host(system, self._folder / str(self._hosts), (MODEL,))


def _workers(host: Host) -> list[int]:
    found = []
    for pid in host.family():
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
