"""Hosts whose model is called in threads or in worker processes, and the loads on them that are compared."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean

from rounds import IDLE_S, Case, Round, Timing, read_load, start_load
from systems import MODEL, Host, System

__all__ = ["Form", "WorkerHosts", "workers_of"]

SCRIPT = Path(__file__).parent / "hosts" / "workers.py"


@dataclass(frozen=True)
class Form:
    """How a host calls its model.

    Attributes:
        workers: Processes; 0 is a thread of the host.
        loops: Of Python for each request.
        busy: Whether a thread of the host never rests.
    """

    workers: int = 0
    loops: int = 0
    busy: bool = False


class WorkerHosts:
    """Hosts of one round.

    Args:
        system: Ours.
        timing: Of the loads.
        folder: An empty one for the hosts' files.
        result: Gets problems.
    """

    def __init__(self, system: System, timing: Timing, folder: Path, result: Round) -> None:
        self.timing = timing
        self._system = replace(system, command=[system.command[0], str(SCRIPT)])
        self._folder = folder
        self._result = result
        self._numbers = count()

    def start(self, form: Form) -> Host:
        """A host, to be used as a context and ended with :meth:`stop`."""
        environment = {**self._system.environment, "BENCH_WORKERS": json.dumps(form.__dict__)}
        system = replace(self._system, environment=environment)
        return Host(system, self._folder / str(next(self._numbers)), (MODEL,))

    def stop(self, *hosts: Host) -> None:
        """End hosts after they were idle for a while, and note what they leave."""
        time.sleep(IDLE_S)
        for host in hosts:
            host.stop()
        for host in hosts:  # which look for any process that is left
            self._result.problems += host.left_behind()

    def compare(self, forms: Mapping[str, Form], case: Case, measure: str) -> dict[str, float]:
        """What a load finds on hosts that run at the same time, each measured twice: there and back.

        Args:
            forms: Of the hosts, by the names that they have in the result.
            case: The load.
            measure: The attribute of Result that is wanted.

        Returns:
            The mean of both measurements, by name.
        """
        with ExitStack() as stack:
            hosts = {name: stack.enter_context(self.start(form)) for name, form in forms.items()}
            for host in hosts.values():
                host.wait_first_answer()
            found: dict[str, list[float]] = {name: [] for name in hosts}
            for name in [*hosts, *reversed(hosts)]:
                load = start_load(hosts[name], case, self.timing.seconds, self.timing.warmup_s)
                tally = read_load(hosts[name], case, load)
                found[name].append(getattr(tally, measure))
                if tally.errors:
                    self._result.problems.append(f"{name}, {case.title}: {tally.errors} errors")
            self.stop(*hosts.values())
        return {name: fmean(values) for name, values in found.items()}


def workers_of(host: Host) -> list[int]:
    """The worker processes, oldest first."""
    found = []
    for pid in sorted(host.family()):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
