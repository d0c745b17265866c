"""Has two workers of a large model replaced again and again under load, and says what that leaves behind.

Usage: ``python scripts/worker_chaos.py [--restarts 100] [--megabytes 200] [--max-requests 0] [--json FILE]``. Workers
are killed in turn or, with ``--max-requests``, wear out. Exit status 1 means problems: more failed requests than kills,
or memory, files, shared memory or processes that grow.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from processes import adopt_orphans, names, open_files, resident_bytes
from rounds import Case, Round, Timing, read_load, start_load
from systems import Host, find_system
from worker_hosts import Form, WorkerHosts, workers_of

LOAD = Case("http", 16, floats=16 << 10)  # which travel through the arenas
LOOPS = 50_000  # of Python for each request, which leave some time to whatever else runs
SEGMENT_S = 10.0
SETTLED_SHARE = 0.2  # of the restarts, after which nothing is to grow any more
SLACK_BYTES, SLACK_FILES = 24 << 20, 24  # of which 16 are connections of clients, which come and go
RESTART_TIMEOUT_S = 60.0
POLL_S = 0.01


@dataclass(frozen=True)
class Look:
    """What the processes that live on hold after some restarts.

    Attributes:
        rss_bytes: By name of the process.
        open_files: By name of the process.
    """

    restarts: int
    rss_bytes: dict[str, int]
    open_files: dict[str, int]
    processes: int
    shared_memory: int


@dataclass
class Wear:
    """What happened."""

    looks: list[Look] = field(default_factory=list)
    restart_s: list[float] = field(default_factory=list)
    answered: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)


def wear(form: Form, restarts: int, folder: Path) -> Wear:
    """Replace the workers of a host so many times; it kills them if they do not wear out by themselves."""
    result, round_ = Wear(), Round("ours", 1)
    hosts = WorkerHosts(find_system("ours"), Timing(SEGMENT_S, 0), folder, round_)
    with hosts.start(form) as host:
        host.wait_first_answer()
        _wait(lambda: _ready(host) >= form.workers, "the workers", host)
        stop = threading.Event()
        loading = threading.Thread(target=_load, args=(host, stop, result))
        loading.start()
        try:
            _replace(host, form, restarts, result)
        finally:
            stop.set()
            loading.join()
        hosts.stop(host)
    result.problems += round_.problems
    judge(result, 0 if form.max_requests else restarts)
    return result


def _replace(host: Host, form: Form, restarts: int, result: Wear) -> None:
    for number in range(1, restarts + 1):
        began = time.monotonic()
        if not form.max_requests:
            os.kill(workers_of(host)[0], signal.SIGKILL)  # the oldest one
        _wait(lambda wanted=form.workers + number: _ready(host) >= wanted, "a new worker", host)  # type: ignore[misc]
        result.restart_s.append(time.monotonic() - began)
        if number % max(1, restarts // 20) == 0 or number == restarts:
            result.looks.append(_look(host, number))
            print(json.dumps(asdict(result.looks[-1])), flush=True)


def _load(host: Host, stop: threading.Event, result: Wear) -> None:
    while not stop.is_set():
        tally = read_load(host, LOAD, start_load(host, LOAD, SEGMENT_S, 0))
        result.answered += tally.answered
        result.failed += tally.errors


def _look(host: Host, restarts: int) -> Look:
    named = {pid: name for pid, name in names(host.family()).items() if not name.startswith("python")}
    return Look(
        restarts,
        {name: resident_bytes(pid) for pid, name in named.items()},
        {name: open_files(pid) for pid, name in named.items()},
        len(host.family()),
        len(host.shared_memory()),
    )


def _ready(host: Host) -> int:
    """How many workers have become ready so far."""
    return host.output().count("is ready after")


def _wait(condition: Callable[[], bool], what: str, host: Host) -> None:
    deadline = time.monotonic() + RESTART_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {RESTART_TIMEOUT_S} s for {what}:\n{host.tail()}")
        time.sleep(POLL_S)


def judge(result: Wear, kills: int) -> None:
    """Note what is worse than it may be."""
    if result.failed > kills or not result.answered:
        result.problems.append(f"{result.failed} requests failed, of {result.answered}, after {kills} kills")
    settled = result.looks[int(SETTLED_SHARE * len(result.looks))]
    last = result.looks[-1]
    for what, before, after, slack in (
        ("bytes", settled.rss_bytes, last.rss_bytes, SLACK_BYTES),
        ("open files", settled.open_files, last.open_files, SLACK_FILES),
        ("files", {"shared memory": settled.shared_memory}, {"shared memory": last.shared_memory}, 0),
    ):
        for name, amount in before.items():
            if after.get(name, 0) > amount + slack:
                result.problems.append(f"{name}: {amount} {what}, then {after[name]}")
    if last.processes > settled.processes + 1:  # one of which was about to be replaced
        result.problems.append(f"{settled.processes} processes, then {last.processes}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--megabytes", type=int, default=200, help="of memory, which each worker fills when it starts")
    parser.add_argument("--max-requests", type=int, default=0, help="have workers wear out after as many, not killed")
    parser.add_argument("--json", type=Path, help="where to write the result")
    chosen = parser.parse_args(arguments)
    form = Form(workers=2, loops=LOOPS, ballast_mb=chosen.megabytes, max_requests=chosen.max_requests)
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="worker-chaos-") as folder:
        result = wear(form, chosen.restarts, Path(folder))
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(result), indent=2))
    print(
        f"{result.answered} requests answered, {result.failed} failed; a restart took {median(result.restart_s):.2f} s"
    )
    for problem in result.problems:
        print(f"PROBLEM: {problem}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
