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
from typing import Any, NamedTuple

from hosts import BenchError, Host, System
from load import Values
from payloads import MODEL
from processes import cpu_s, end_with_parent, names, sleeps

__all__ = ["IDLE_S", "Case", "Plan", "Round", "Run", "Section", "cpu_us", "order", "read_program", "start_program"]

IDLE_S = 1.5
_FOLDER = Path(__file__).parent
GRACE_S = 180.0  # of a program, besides the duration of its load: imports, and timeouts
_CPU_GROUPS = {"tritonserver": "server", "triton_python_backend_stub": "stub"}


class Case(NamedTuple):
    """One load on a server."""

    protocol: str
    connections: int
    workload: str = "64 B"

    @property
    def title(self) -> str:
        """Such as ``http 16 x 64 B``."""
        return f"{self.protocol} {self.connections} x {self.workload}"


@dataclass
class Round:
    """What a round measured of a system: values by group and measure, and what went wrong."""

    system: str
    number: int
    values: dict[str, Values] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, and how.

    Attributes:
        systems: Those that are compared.
        rounds: How often each is measured.
        seconds: Of each load.
        warmup_s: Before each load.
        clients: How many of each kind churn opens and closes.
        folder: An empty one, in which each host gets a folder.
        say: Gets a line of progress at a time.
        only: Loads whose titles do not contain this are left out.
        peers: Interpreters of other frameworks, by name.
    """

    systems: Sequence[System]
    rounds: int
    seconds: float
    warmup_s: float
    clients: int
    folder: Path
    say: Callable[[str], None]
    only: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)

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

    def put(self, title: str, values: Values, name: str = "") -> None:
        """Add values to the round of a system, by default of the run's own; errors are problems."""
        found = self.round_of(name or self.system.name)
        found.values.setdefault(title, {}).update(values)
        if values.get("errors"):
            found.problems.append(f"{title}: {values['errors']:.0f} errors")
        shown = next(iter(values.items()), ("nothing", 0.0))
        self.plan.say(f"round {self.number}, {found.system}, {title}: {shown[0]} {shown[1]:.4g}")

    def load(self, *cases: Case, name: str = "") -> None:
        """Put loads on the host's server, one after the other; ``name``: of another system than the run's own."""
        for case in cases:
            if self.plan.only in case.title:
                before, slept = cpu_s(self.host.family()), sleeps(self.host.family())
                found = self.measure(self.host, case)
                answered = found.pop("answered")
                used_us = used_cpu_us(self.host, before, answered)
                used_us["sleeps"] = (sleeps(self.host.family()) - slept) / answered
                self.put(case.title, found | used_us, name)

    def measure(self, host: Host, case: Case) -> Values:
        """The figures of a load on the server of a host."""
        this = System("", [sys.executable], dict(os.environ), {})
        options = {"workload": case.workload, "connections": case.connections, "copies": int(host.copies)}
        found: Values = self.program(this, "load.py", case.protocol, host=host, **options)
        return found

    def program(self, caller: System, *arguments: str, host: Host | None = None, **options: object) -> Any:
        """What a program of this folder prints under the interpreter of a system, by default about the run's host."""
        host, times = host or self.host, {"seconds": self.plan.seconds, "warmup": self.plan.warmup_s}
        process = start_program(host, caller, *arguments, **times, **options)
        return read_program(host, process, 7 * (self.plan.seconds + self.plan.warmup_s) + self.plan.clients + GRACE_S)

    def try_program(self, caller: System, *arguments: str, **options: object) -> Any:
        """The same; None if it fails, which is a problem of the caller's."""
        try:
            return self.program(caller, *arguments, **options)
        except BenchError as error:
            self.round_of(caller.name).problems.append(str(error))
            return None

    def stop(self, *hosts: Host, title: str = "", name: str = "") -> None:
        """Stop hosts that have been idle for a while; note what they leave behind, and the time under a title.

        Args:
            hosts: All that run.
            title: For the time; empty if it is of no interest.
            name: Of another system than the run's own.
        """
        time.sleep(IDLE_S)
        for host in hosts:
            seconds = host.stop()
            if title:
                self.put(title, {"stop s": seconds})
        for host in hosts:  # which look for any process that is left
            self.round_of(name or self.system.name).problems += host.left_behind()


@dataclass(frozen=True)
class Section:
    """A part of the benchmark.

    Attributes:
        measure: Measures on a host that has answered once, or, without models, starts its own hosts.
        systems: The names of those that it can measure.
        models: That the host serves, MODEL last.
        once: Whether one round is enough.
    """

    measure: Callable[[Run], None]
    systems: Sequence[str]
    models: tuple[str, ...] = (MODEL,)
    once: bool = False

    def rounds(self, name: str, plan: Plan) -> list[Round]:
        """Measure each system once per round; what fails is a problem of its round, and ends it."""
        found: list[Round] = []
        for number in range(1, (1 if self.once else plan.rounds) + 1):
            for system in order(plan.systems, number):
                if system.name in self.systems:
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
            run.put("start and stop", {"first answer s": run.host.wait_first_answer()})
            self.measure(run)
            run.stop(run.host, title="start and stop")


def order(systems: Sequence[System], number: int) -> list[System]:
    """The systems of a round, each round beginning with another, so that none always follows the same one."""
    shift = (number - 1) % len(systems)
    return [*systems[shift:], *systems[:shift]]


def start_program(host: Host, caller: System, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Start a program of this folder, whose last argument is a protocol, under the interpreter of a system."""
    script, *rest = arguments
    how = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [caller.command[0], str(_FOLDER / script), *rest, f"--port={host.ports[rest[-1]]}", *how],
        env=caller.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,
    )


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


def used_cpu_us(host: Host, before: Mapping[int, float], answered: float) -> Values:
    """What :func:`cpu_us` makes of the CPU seconds that the host's family has used since it had used ``before``."""
    named = names(host.family())
    return cpu_us([(named[pid], seconds - before.get(pid, 0.0)) for pid, seconds in cpu_s(named).items()], answered)


def cpu_us(used_s: Iterable[tuple[str, float]], answered: float) -> Values:
    """CPU microseconds per request of the server, of its stubs and of all other processes, the worker's.

    Args:
        used_s: Names of processes, and the CPU seconds that each used.
        answered: Number of requests.
    """
    result = {"server": 0.0, "stub": 0.0, "worker": 0.0}
    for name, seconds in used_s:
        result[_CPU_GROUPS.get(name.partition(" #")[0], "worker")] += seconds / answered * 1e6
    return {f"{group} CPU us": value for group, value in result.items()}
