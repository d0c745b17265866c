"""What the processes of a host hold, and what of it grows in a long load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hosts import Host
from processes import names, open_files, resident_bytes
from report import number

__all__ = ["Sample", "grown", "look", "settled"]

SETTLE_S = 60.0
SLACK_BYTES, SLACK_FILES = 64 << 20, 32  # of which connections of clients come and go


@dataclass(frozen=True)
class Sample:
    """One look at a host; times from its start.

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

    def quantities(self) -> dict[str, tuple[float, float]]:
        """Each quantity, in MiB or as a number, and by how much it may grow."""
        memory, files = SLACK_BYTES / 2**20, float(SLACK_FILES)
        return {
            **{f"{name} RSS MiB": (size / 2**20, memory) for name, size in self.rss_bytes.items()},
            **{f"{name} open files": (count, files) for name, count in self.open_files.items()},
            "/dev/shm MiB": (self.shared_memory_bytes / 2**20, memory),
            "workspace files": (self.workspace_files, files),
        }


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


def settled(samples: Sequence[Sample]) -> Sample:
    """The first look at a host that had settled: after a minute, or half of a shorter load."""
    first, last = samples[0].at_s, samples[-1].at_s
    return next(each for each in samples if each.at_s >= first + min(SETTLE_S, (last - first) / 2))


def grown(samples: Sequence[Sample], lasting: Collection[str] = ()) -> list[str]:
    """What grew from when it should have settled to the last sample.

    Args:
        samples: One at least.
        lasting: Names of the processes that count; default: those of the last sample.
    """
    before, problems = settled(samples).quantities(), []
    for name, (amount, slack) in samples[-1].quantities().items():
        counts = not lasting or name.split(" ")[0] in (*lasting, "/dev/shm", "workspace")
        if counts and name in before and amount > before[name][0] + slack:
            problems.append(f"{name}: {number(before[name][0])}, then {number(amount)}")
    return problems
