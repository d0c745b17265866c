"""One round of worker processes: what they gain, cost and lose, each beside what they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rounds import Case, Round, Timing
from systems import BenchError, System
from worker_hosts import Form, WorkerHosts
from worker_kills import lose_one

__all__ = ["measure_workers"]

LOOPS = 400_000  # of Python, which take about 10 ms: server and clients need some 2 % of that, on the same cores
ONE, SEVERAL = Case("http", 1), Case("http", 16)
TRIVIAL = [ONE, SEVERAL, Case("grpc", 1), Case("grpc", 16)]
THREAD, WORKER = Form(), Form(workers=1)

_Values = dict[str, dict[str, float]]


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
    hosts = WorkerHosts(system, timing, folder, result)
    try:
        for measure in (_compare_counts, _compare_costs, _compare_beside_busy_thread, _kill):
            for title, values in measure(hosts).items():
                result.values[title] = values
                ratios = [f"{name} {value:.2f}" for name, value in values.items() if " / " in name]
                say(f"round {number}, {system.name}, {title}: {', '.join(ratios) or 'done'}")
    except BenchError as error:
        result.problems.append(str(error))
    return result


def _compare_counts(hosts: WorkerHosts) -> _Values:
    forms = {f"{count} workers requests/s": Form(workers=count, loops=LOOPS) for count in (1, 2)}
    values = hosts.compare(forms, SEVERAL, "requests_per_s")
    return {"a callable of Python alone": values | {"2 workers / 1": _ratio(values)}}


def _compare_costs(hosts: WorkerHosts) -> _Values:
    found = {}
    for case in TRIVIAL:
        values = hosts.compare({"thread requests/s": THREAD, "1 worker requests/s": WORKER}, case, "requests_per_s")
        found[f"a trivial callable, {case.title}"] = values | {"1 worker / thread": _ratio(values)}
    return found


def _compare_beside_busy_thread(hosts: WorkerHosts) -> _Values:
    """One after the other, because a busy thread takes a core from whatever runs beside it."""
    values = {}
    for name, workers in (("thread", 0), ("1 worker", 1)):
        quiet, busy = (
            hosts.compare({"": Form(workers=workers, busy=is_busy)}, ONE, "p50_us")[""] for is_busy in (False, True)
        )
        values |= {f"{name} quiet p50 us": quiet, f"{name} busy p50 us": busy, f"{name} busy / quiet": busy / quiet}
    return {"beside a busy thread of the hosting process": values}


def _kill(hosts: WorkerHosts) -> _Values:
    return {"one of two workers is killed": lose_one(hosts, Form(workers=2, loops=LOOPS), SEVERAL)}


def _ratio(values: dict[str, float]) -> float:
    """The second value over the first."""
    first, second = values.values()
    return second / first
