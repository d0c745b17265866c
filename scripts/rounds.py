"""The one mechanism of the benchmark: a round starts a system, puts loads on it, and stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import LIMIT, BenchError, Host, System, find_system
from payloads import MODEL
from processes import cpu_s, end_with_parent, names
from tally import Result

__all__ = ["IDLE_S", "Case", "Plan", "Round", "Run", "Section", "Timing", "Values", "cpu_us", "order"]
__all__ += ["read_program", "start_load", "used_cpu_us", "values_of"]

IDLE_S = 1.5
GRACE_S = 180.0  # of a load, besides its own duration: imports, and timeouts of the generators
_LOAD = Path(__file__).with_name("load.py")
_CPU_GROUPS = {"tritonserver": "server", "triton_python_backend_stub": "stub"}

Values = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One load on a server."""

    protocol: str
    connections: int
    workload: str = "64 B"

    @property
    def title(self) -> str:
        """Such as ``http 16 x 64 B``."""
        return f"{self.protocol} {self.connections} x {self.workload}"


@dataclass(frozen=True)
class Timing:
    """Durations of each load in seconds."""

    seconds: float
    warmup_s: float


@dataclass
class Round:
    """What a round measured of a system: values by group and measure, and what went wrong."""

    system: str
    number: int
    values: dict[str, Values] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is measured, and how.

    Attributes:
        systems: Those that are compared.
        rounds: How often each is measured.
        timing: Durations of each measurement.
        clients: How many of each kind churn opens and closes.
        folder: An empty one, in which each host gets a folder.
        say: Gets a line of progress at a time.
        memory_requests: Over how many memory is looked at in process; 0 looks at none.
        only: Loads whose titles do not contain this are left out.
    """

    systems: Sequence[System]
    rounds: int
    timing: Timing
    clients: int
    folder: Path
    say: Callable[[str], None]
    memory_requests: int = 0
    only: str = ""

    @property
    def ours(self) -> System:
        """Ours, with its proxy if it is compared: its server is what clients call, its tritonclient calls servers."""
        return next((system for system in self.systems if system.name == "ours"), None) or find_system("ours")

    def callers(self, number: int) -> list[System]:
        """The systems that have clients of their own, in the order of a round."""
        return [system for system in order(self.systems, number) if system.name in ("ours", "peer")]


class Run:
    """One round of one system on one host."""

    def __init__(self, plan: Plan, system: System, number: int, folder: Path) -> None:
        self.plan, self.system, self.number, self.folder = plan, system, number, folder
        self.rounds = {system.name: Round(system.name, number)}
        self.host: Host

    @property
    def own(self) -> Round:
        """The round of the system itself."""
        return self.round_of(self.system.name)

    def round_of(self, name: str) -> Round:
        """The round of a system whose clients are measured on this host."""
        return self.rounds.setdefault(name, Round(name, self.number))

    def put(self, name: str, title: str, values: Values) -> None:
        """Add values to the round of a system; errors are problems."""
        self.round_of(name).values.setdefault(title, {}).update(values)
        if values.get("errors"):
            self.round_of(name).problems.append(f"{title}: {values['errors']:.0f} errors")
        shown = next(iter(values.items()), ("nothing", 0.0))
        self.plan.say(f"round {self.number}, {name}, {title}: {shown[0]} {shown[1]:.4g}")

    def load(self, *cases: Case) -> None:
        """Put loads on the host's server, one after the other."""
        timing = self.plan.timing
        for case in cases:
            if self.plan.only in case.title:
                before = cpu_s(self.host.family())
                found = Result(**read_program(self.host, start_load(self.host, case, timing.seconds, timing.warmup_s)))
                self.put(
                    self.system.name, case.title, values_of(found) | used_cpu_us(self.host, before, found.answered)
                )

    def program(self, caller: System, kind: str, protocol: str, timeout_s: float = 0, **options: object) -> Any:
        """What load.py prints under the interpreter of a system."""
        timing = self.plan.timing
        options = {"seconds": timing.seconds, "warmup": timing.warmup_s, **options}
        process = start_program(self.host, caller, kind, protocol, **options)
        return read_program(self.host, process, timeout_s + 7 * (timing.seconds + timing.warmup_s) + GRACE_S)

    def try_program(self, caller: System, kind: str, protocol: str, **options: object) -> Any:
        """The same; None if it fails, which is a problem of the caller's."""
        try:
            return self.program(caller, kind, protocol, **options)
        except BenchError as error:
            self.round_of(caller.name).problems.append(str(error))
            return None

    def stop(self, *hosts: Host) -> None:
        """Stop hosts that have been idle for a while, and note what they leave behind."""
        time.sleep(IDLE_S)
        for host in hosts:
            self.put(self.system.name, "start and stop", {"stop s": host.stop()})
        for host in hosts:  # which look for any process that is left
            self.own.problems += host.left_behind()


@dataclass(frozen=True)
class Section:
    """A part of the benchmark.

    Attributes:
        measure: Measures on a host that has answered once, or, without models, starts its own hosts.
        models: That the host serves, MODEL last.
        compared: Whether all systems are measured, or ours alone.
        limit: Whether the system LIMIT can be measured.
        once: Whether one round is enough.
    """

    measure: Callable[[Run], None]
    models: tuple[str, ...] = (MODEL,)
    compared: bool = True
    limit: bool = False
    once: bool = False

    def rounds(self, name: str, plan: Plan) -> list[Round]:
        """Measure each system once per round; what fails is a problem of its round, and ends it."""
        found: list[Round] = []
        for number in range(1, (1 if self.once else plan.rounds) + 1):
            for system in order(plan.systems, number) if self.compared else [plan.ours]:
                if system.name == LIMIT and not self.limit:
                    continue
                run = Run(plan, system, number, plan.folder / f"{name}-{system.name}-{number}")
                try:
                    self._measure(run)
                except BenchError as error:
                    run.own.problems.append(str(error))
                found += run.rounds.values()
        return found

    def _measure(self, run: Run) -> None:
        if not self.models:
            self.measure(run)
            return
        with Host(run.system, run.folder, self.models) as run.host:
            run.own.values["start and stop"] = {"first answer s": run.host.wait_first_answer()}
            self.measure(run)
            run.stop(run.host)


def order(systems: Sequence[System], number: int) -> list[System]:
    """The systems of a round, each round beginning with another, so that none always follows the same one."""
    shift = (number - 1) % len(systems)
    return [*systems[shift:], *systems[:shift]]


def start_program(host: Host, caller: System, kind: str, protocol: str, **options: object) -> subprocess.Popen[str]:
    """Start load.py in a process of its own, whose end :func:`read_program` waits for."""
    how = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [caller.command[0], str(_LOAD), kind, protocol, f"--port={host.ports[protocol]}", *how],
        env=caller.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,
    )


def start_load(host: Host, case: Case, seconds: float, warmup_s: float) -> subprocess.Popen[str]:
    """Start a load on the server of a host."""
    this = System("", [sys.executable], dict(os.environ), {})
    options = {"workload": case.workload, "connections": case.connections, "seconds": seconds, "warmup": warmup_s}
    return start_program(host, this, "server", case.protocol, **options, copies=int(host.copies))


def read_program(host: Host, program: subprocess.Popen[str], timeout_s: float = GRACE_S) -> Any:
    """What a program has printed; raises BenchError if it failed, or takes longer than ``timeout_s`` from now."""
    what = " ".join(map(str, program.args[1:4]))  # type: ignore[index]
    try:
        printed, complaint = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        program.kill()
        program.communicate()
        raise BenchError(f"{what}: it did not end in {timeout_s:.0f} s") from error
    if program.returncode:
        raise BenchError(f"{what}: it failed:\n{complaint}\nThe last lines of the host:\n{host.tail()}")
    return json.loads(printed.splitlines()[-1])


def values_of(result: Result) -> Values:
    """The rows of a load."""
    return {
        "requests/s": result.requests_per_s,
        "p50 us": result.p50_us,
        "p99 us": result.p99_us,
        "errors": result.errors,
    }


def used_cpu_us(host: Host, before: Mapping[int, float], answered: int) -> Values:
    """What :func:`cpu_us` makes of the CPU seconds that the host's family has used since it had used ``before``."""
    named = names(host.family())
    return cpu_us([(named[pid], seconds - before.get(pid, 0.0)) for pid, seconds in cpu_s(named).items()], answered)


def cpu_us(used_s: Iterable[tuple[str, float]], answered: int) -> Values:
    """CPU microseconds per request of the server, of its stubs and of all other processes, the worker's.

    Args:
        used_s: Names of processes, and the CPU seconds that each used.
        answered: Number of requests.
    """
    result = {"server": 0.0, "stub": 0.0, "worker": 0.0}
    for name, seconds in used_s:
        result[_CPU_GROUPS.get(name.partition(" #")[0], "worker")] += seconds / answered * 1e6
    return {f"{group} CPU us": value for group, value in result.items()}
