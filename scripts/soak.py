"""A long load of mixed sizes, and what becomes of memory and files meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from processes import names, open_files, resident_bytes
from report import align, number
from rounds import Case, read_load, start_load
from systems import Host, System

__all__ = ["Sample", "Soak", "Trend", "soak", "soak_table", "trends"]

CASES = [Case("http", 4, floats) for floats in (16, 4 << 10, 64 << 10, 256 << 10)]
SEGMENT_S = 20.0  # then the connections are made anew, and the answers verified
SAMPLE_S = 5.0
POLL_S = 0.1
SETTLE_S = 60.0
IDLE_S = 1.5


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
    """What a soak found."""

    system: str
    minutes: float
    requests: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def soak(system: System, minutes: float, folder: Path, say: Callable[[str], None]) -> Soak:
    """Load a system over 16 connections, four of each size.

    Args:
        system: What to load.
        minutes: For how long.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Raises:
        BenchError: The host did not start, or a load failed.
    """
    result = Soak(system.name, minutes, dict.fromkeys((case.title for case in CASES), 0))
    with Host(system, folder) as host:
        host.wait_first_answer()
        _load_mixed(host, result, say)
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
            result.samples.append(_look(host, now - begin))
            total = sum(result.samples[-1].rss_bytes.values()) / 2**20
            say(f"{result.system}, {now - begin:.0f} s: {total:.0f} MiB, {len(result.problems)} problems")
        time.sleep(POLL_S)
    result.samples.append(_look(host, time.monotonic() - begin))
    for case, load in loads.items():
        _count(result, host, case, load)


def _count(result: Soak, host: Host, case: Case, load: subprocess.Popen[str]) -> None:
    counted = read_load(host, case, load)
    result.requests[case.title] += counted.answered
    if counted.errors:
        result.problems.append(f"{case.title}: {counted.errors} errors")


def _look(host: Host, at_s: float) -> Sample:
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
    settled_s = min(SETTLE_S, at_s[-1] / 2)
    first = next(index for index, seconds in enumerate(at_s) if seconds >= settled_s)
    if first == len(at_s) - 1:
        return Trend(values[first], values[-1], 0.0)
    slope = np.polyfit(np.array(at_s[first:]) / 60, values[first:], 1)[0]
    return Trend(values[first], values[-1], float(slope))


def soak_table(result: Soak) -> str:
    """A line for each quantity, and for the requests of each size."""
    lines = [[f"{result.system}, {number(result.minutes)} min", "settled", "end", "per min"]]
    for name, trend in trends(result.samples).items():
        lines.append([f"  {name}", number(trend.settled), number(trend.last), f"{trend.slope_per_min:+.3f}"])
    lines += [[f"  requests, {title}", "", str(count), ""] for title, count in result.requests.items()]
    return align(lines)
