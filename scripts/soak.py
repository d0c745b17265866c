"""A long load of mixed sizes, streams and errors, and what becomes of memory and files meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from checked import Caller, Found
from hosts import LIMIT, BenchError, Host, System
from payloads import ERRANT, MODEL, STREAM
from processes import names, open_files, resident_bytes
from report import align, number
from rounds import Case, read_program, start_load
from tally import Result

__all__ = ["Sample", "Soak", "Trend", "grown", "look", "soak", "soak_table", "trends"]

SIZES = ("64 B", "16 KiB", "256 KiB", "1 MiB")
CASES = [Case(protocol, connections, size) for protocol, connections in (("http", 4), ("grpc", 2)) for size in SIZES]
CALLERS = [("asyncio", "http"), ("asyncio", "grpc"), ("streams", "grpc")]
BAD_CALLERS = [("bad", "http"), ("bad", "grpc"), ("stopped", "grpc")]
TIMEOUT_S = 30.0  # of the callers, whose requests wait behind 1 MiB each on 12 connections
SEGMENT_S = 60.0  # then the connections are made anew, and the answers verified
SAMPLE_S = 5.0
POLL_S = 0.1
SETTLE_S = 60.0
IDLE_S = 1.5
SLACK_BYTES, SLACK_FILES = 64 << 20, 32  # of which connections of clients come and go


@dataclass(frozen=True)
class Sample:
    """One look at a host; times from the start of the load.

    Attributes:
        rss_bytes: By name of the process.
        open_files: By name of the process.
        shared_memory_bytes: Total size of the host's files in /dev/shm.
        workspace_files: Number of files and folders in the workspaces.
    """

    at_s: float
    rss_bytes: dict[str, int]
    open_files: dict[str, int]
    shared_memory_bytes: int
    workspace_files: int


@dataclass(frozen=True)
class Trend:
    """A quantity when it should have settled, after a minute or half of a shorter load, and from then on."""

    settled: float
    last: float
    slope_per_min: float


@dataclass
class Soak:
    """What a soak found.

    Attributes:
        requests: Their number by load, of those whose answers are verified once a segment.
        calls: Their number by what they came to, of those that are each verified.
    """

    system: str
    minutes: float
    requests: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)


def soak(system: System, minutes: float, folder: Path, say: Callable[[str], None]) -> Soak:
    """Load a system over HTTP and gRPC, with four sizes of requests, streams, and requests that fail.

    Args:
        system: What to load.
        minutes: For how long.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Raises:
        BenchError: The host did not start.
    """
    result = Soak(system.name, minutes, dict.fromkeys((case.title for case in CASES), 0))
    errs = system.name not in (
        "raw",
        LIMIT,
    )  # raw does not end by itself after stopped streams
    with Host(system, folder, (STREAM, *([ERRANT] if errs else []), MODEL)) as host, ExitStack() as callers:
        host.wait_first_answer()
        found = Found(TIMEOUT_S)
        for kind, protocol in [*CALLERS, *(BAD_CALLERS if errs else [])]:
            callers.enter_context(Caller(kind, protocol, host.ports[protocol], found))
        try:
            _load_mixed(host, result, say)
        except BenchError as error:  # what was found so far counts all the same
            result.problems.append(str(error))
        callers.close()
        result.calls = dict(sorted(found.calls.items()))
        result.problems += found.problems
        result.problems += [f"{count} calls: {what}" for what, count in found.calls.items() if what.endswith("Error")]
        result.problems += grown(result.samples)
        time.sleep(IDLE_S)
        host.stop()
        result.problems += host.left_behind()
    return result


def _load_mixed(host: Host, result: Soak, say: Callable[[str], None]) -> None:
    begin = time.monotonic()
    end, next_sample = begin + 60 * result.minutes, begin
    loads: dict[Case, subprocess.Popen[str]] = {}
    while (now := time.monotonic()) < end:
        for case in CASES:
            if case in loads and loads[case].poll() is not None:
                _count(result, host, case, loads.pop(case))
            if case not in loads:
                loads[case] = start_load(host, case, min(SEGMENT_S, end - now), warmup_s=0)
        if now >= next_sample:
            next_sample += SAMPLE_S
            result.samples.append(look(host, now - begin))
            total = sum(result.samples[-1].rss_bytes.values()) / 2**20
            say(f"{result.system}, {now - begin:.0f} s: {total:.0f} MiB, {len(result.problems)} problems")
        time.sleep(POLL_S)
    result.samples.append(look(host, time.monotonic() - begin))
    for case, load in loads.items():
        _count(result, host, case, load)


def _count(result: Soak, host: Host, case: Case, load: subprocess.Popen[str]) -> None:
    counted = Result(**read_program(host, load))
    result.requests[case.title] += counted.answered
    if counted.errors:
        result.problems.append(f"{case.title}: {counted.errors} errors")


def look(host: Host, at_s: float) -> Sample:
    """What the processes of a host hold at this moment."""
    named = names(host.family())
    return Sample(
        at_s,
        {name: resident_bytes(pid) for pid, name in named.items()},
        {name: open_files(pid) for pid, name in named.items()},
        sum(host.shared_memory().values()),
        sum(1 for _ in host.home.rglob("*")),
    )


def trends(samples: Sequence[Sample]) -> dict[str, Trend]:
    """How each quantity went: MiB of memory, and numbers of files; of the processes that were there at the end."""
    series: dict[str, list[float]] = {}
    for name in samples[-1].rss_bytes:
        series[f"{name} RSS MiB"] = [each.rss_bytes.get(name, 0) / 2**20 for each in samples]
        series[f"{name} open files"] = [each.open_files.get(name, 0) for each in samples]
    series["/dev/shm MiB"] = [each.shared_memory_bytes / 2**20 for each in samples]
    series["workspace files"] = [each.workspace_files for each in samples]
    at_s = [each.at_s for each in samples]
    return {name: _trend(at_s, values) for name, values in series.items()}


def _trend(at_s: Sequence[float], values: Sequence[float]) -> Trend:
    first = _first_settled(at_s)
    if first == len(at_s) - 1:
        return Trend(values[first], values[-1], 0.0)
    slope = np.polyfit(np.array(at_s[first:]) / 60, values[first:], 1)[0]
    return Trend(values[first], values[-1], float(slope))


def _first_settled(at_s: Sequence[float]) -> int:
    settled_s = at_s[0] + min(SETTLE_S, (at_s[-1] - at_s[0]) / 2)
    return next(index for index, seconds in enumerate(at_s) if seconds >= settled_s)


def grown(samples: Sequence[Sample], lasting: Collection[str] = ()) -> list[str]:
    """What grew from when it should have settled to the last sample.

    Args:
        samples: One at least.
        lasting: Names of the processes that count; default: those of the last sample.
    """
    settled, last = samples[_first_settled([each.at_s for each in samples])], samples[-1]
    problems = []
    for what, before, after, slack in (
        ("bytes", settled.rss_bytes, last.rss_bytes, SLACK_BYTES),
        ("open files", settled.open_files, last.open_files, SLACK_FILES),
        ("bytes", {"/dev/shm": settled.shared_memory_bytes}, {"/dev/shm": last.shared_memory_bytes}, SLACK_BYTES),
        ("files", {"workspace": settled.workspace_files}, {"workspace": last.workspace_files}, SLACK_FILES),
    ):
        for name, amount in after.items():
            counts = not lasting or name in (*lasting, "/dev/shm", "workspace")
            if counts and amount > before.get(name, amount) + slack:
                problems.append(f"{name}: {before[name]} {what}, then {amount}")
    return problems


def soak_table(result: Soak) -> str:
    """A line for each quantity, for the requests of each size, and for what the verified calls came to."""
    lines = [[f"{result.system}, {number(result.minutes)} min", "settled", "end", "per min"]]
    for name, trend in trends(result.samples).items():
        lines.append([f"  {name}", number(trend.settled), number(trend.last), f"{trend.slope_per_min:+.3f}"])
    lines += [[f"  requests, {title}", "", str(count), ""] for title, count in result.requests.items()]
    lines += [[f"  calls, {what}", "", str(count), ""] for what, count in result.calls.items()]
    return align(lines)
