"""One round of one system: started, loaded in each way, looked at, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from processes import cpu_s, end_with_parent, memory, names
from systems import ECHO, MODEL, BenchError, Host, System
from tally import Result

__all__ = ["IDLE_S", "LARGE", "LOAD_GRACE_S", "SMALL", "Case", "Round", "Timing", "cpu_us", "measure", "order"]
__all__ += ["measure_load", "read_load", "size", "start_load", "stop", "used_cpu_us"]

IDLE_S = 1.5
LOAD_GRACE_S = 180.0  # besides its own duration: imports, and time-outs of the generators
_LOAD = Path(__file__).with_name("load.py")
_IMPORTS = "import numpy, tritonclient"
_CPU_GROUPS = {"tritonserver": "server", "triton_python_backend_stub": "stub"}


@dataclass(frozen=True)
class Case:
    """One load; with ``strings`` in a request, it goes to another model, and there are no floats."""

    protocol: str
    connections: int
    floats: int = 16
    strings: int = 0

    @property
    def title(self) -> str:
        """Such as ``http 16 x 64 B``, ``http 16 x 1000 strings``."""
        request = f"{self.strings} strings" if self.strings else size(4 * self.floats)
        return f"{self.protocol} {self.connections} x {request}"

    @property
    def model(self) -> str:
        """What it calls."""
        return ECHO if self.strings else MODEL


@dataclass(frozen=True)
class Timing:
    """Durations of each load in seconds."""

    seconds: float
    warmup_s: float


@dataclass
class Round:
    """What a round measured: values by group and measure, and what went wrong."""

    system: str
    number: int
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


SMALL = [Case(protocol, connections) for protocol in ("http", "grpc") for connections in (1, 16, 64)]
LARGE = [Case(protocol, 2, mebibytes << 18) for protocol in ("http", "grpc") for mebibytes in (1, 16)]


def measure(system: System, number: int, timing: Timing, folder: Path, say: Callable[[str], None]) -> Round:
    """Run a round.

    Args:
        system: What to measure.
        number: Of the round, from 1.
        timing: Of the loads.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured. A host that did not start, or died under load, is a problem; the round ends with it.
    """
    result = Round(system.name, number)
    try:
        _measure(result, system, timing, folder, say)
    except BenchError as error:
        result.problems.append(str(error))
    return result


def _measure(result: Round, system: System, timing: Timing, folder: Path, say: Callable[[str], None]) -> None:
    imports_s = _imports_s(system)
    times = result.values["start and stop"] = {f"{_IMPORTS} s": imports_s}
    with Host(system, folder) as host:
        times["first answer s"] = host.wait_first_answer()
        times["first answer less imports s"] = times["first answer s"] - imports_s
        for title, cases in (("small", SMALL), ("large", LARGE)):
            for case in cases:
                measure_load(host, case, timing, result, say)
            result.values[f"memory after {title} loads, MiB"] = _memory_mib(host)
        times["stop s"] = stop(host, result)


def order(systems: Sequence[System], number: int) -> list[System]:
    """The systems of a round, each round beginning with another, so that none always follows the same one."""
    shift = (number - 1) % len(systems)
    return [*systems[shift:], *systems[:shift]]


def stop(host: Host, result: Round) -> float:
    """Stop a host that has been idle for a while; returns the seconds it took, and notes what it left behind."""
    time.sleep(IDLE_S)
    seconds = host.stop()
    result.problems += host.left_behind()
    return seconds


def start_load(host: Host, case: Case, seconds: float, warmup_s: float) -> subprocess.Popen[str]:
    """Start a load in a process of its own, whose end :func:`read_load` waits for."""
    where = [case.protocol, f"--port={host.ports[case.protocol]}", f"--model={case.model}"]
    how = [f"--floats={case.floats}", f"--strings={case.strings}"]
    how += [f"--connections={case.connections}", f"--seconds={seconds}", f"--warmup={warmup_s}"]
    return subprocess.Popen(
        [sys.executable, str(_LOAD), *where, *how],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,
    )


def read_load(host: Host, case: Case, load: subprocess.Popen[str], timeout_s: float = LOAD_GRACE_S) -> Result:
    """The result of a load.

    Raises:
        BenchError: It failed, or took longer than ``timeout_s`` from now.
    """
    try:
        printed, complaint = load.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{case.title}: the load did not end in {timeout_s} s") from error
    if load.returncode:
        raise BenchError(f"{case.title}: the load failed:\n{complaint}\nThe last lines of the host:\n{host.tail()}")
    return Result(**json.loads(printed))


def measure_load(host: Host, case: Case, timing: Timing, result: Round, say: Callable[[str], None]) -> None:
    """Add what a load measures to the result of the round.

    Raises:
        BenchError: The load failed.
    """
    values = result.values[case.title] = _measure_load(host, case, timing)
    if values["errors"]:
        result.problems.append(f"{case.title}: {values['errors']:.0f} errors")
    say(f"round {result.number}, {result.system}, {case.title}: {values['requests/s']:.0f} requests/s")


def _measure_load(host: Host, case: Case, timing: Timing) -> dict[str, float]:
    before = cpu_s(host.family())
    load = start_load(host, case, timing.seconds, timing.warmup_s)
    result = read_load(host, case, load, timing.seconds + timing.warmup_s + LOAD_GRACE_S)
    return {
        "requests/s": result.requests_per_s,
        "p50 us": result.p50_us,
        "p99 us": result.p99_us,
        "errors": result.errors,
        **used_cpu_us(host, before, result.answered),
    }


def _imports_s(system: System) -> float:
    """Seconds that the system's interpreter takes, from start to end, to import what hosts cannot do without."""
    began = time.perf_counter()
    subprocess.run([system.command[0], "-c", _IMPORTS], env=system.environment, check=True)
    return time.perf_counter() - began


def used_cpu_us(host: Host, before: Mapping[int, float], answered: int) -> dict[str, float]:
    """What :func:`cpu_us` makes of the CPU seconds that the host's family has used since it had used ``before``."""
    named = names(host.family())
    used_s = [(named[pid], seconds - before.get(pid, 0.0)) for pid, seconds in cpu_s(named).items()]
    return cpu_us(used_s, answered)


def cpu_us(used_s: Iterable[tuple[str, float]], answered: int) -> dict[str, float]:
    """CPU microseconds per answered request of the server, of its stubs and of all other processes, the worker's.

    Args:
        used_s: Names of processes and the CPU seconds that each used.
        answered: Number of requests.
    """
    result = {"server": 0.0, "stub": 0.0, "worker": 0.0}
    for name, seconds in used_s:
        result[_CPU_GROUPS.get(name.partition(" #")[0], "worker")] += seconds / answered * 1e6
    return {f"{group} CPU us": value for group, value in result.items()}


def _memory_mib(host: Host) -> dict[str, float]:
    named = names(host.family())
    found = {name: memory(pid) for pid, name in named.items()}
    result = {"all PSS": sum(each.pss_bytes for each in found.values()) / 2**20}
    for name in sorted(found):
        result[f"{name} RSS"] = found[name].rss_bytes / 2**20
        result[f"{name} PSS"] = found[name].pss_bytes / 2**20
    return result


def size(count_bytes: int) -> str:
    """A number of bytes in its largest whole unit."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count_bytes >= unit and count_bytes % unit == 0:
            return f"{count_bytes // unit} {name}"
    return f"{count_bytes} B"
