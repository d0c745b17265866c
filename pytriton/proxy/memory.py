"""How much memory is left to the server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

CHECK_S = 0.02
RESERVE_BYTES = 512 << 20
RESERVE_SHARE = 0.05  # where that is less

Amounts = tuple[int, int]
"""Bytes available, and in all."""


class Memory:
    """The memory of the machine and of the control groups, such as containers, that this process runs in.

    Args:
        proc: Where the kernel describes machine and process.
        cgroups: Where it describes control groups.
    """

    def __init__(self, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self._meminfo = os.path.join(proc, "meminfo")
        self._groups = list(_groups(os.path.join(proc, "self", "cgroup"), cgroups))
        self._checked = -CHECK_S
        self._short = False

    def is_short(self) -> bool:
        """Whether one of them has less than its reserve available; looked at every 20 ms at most."""
        now = time.monotonic()
        if now - self._checked >= CHECK_S:
            self._checked = now
            self._short = any(
                available < min(RESERVE_BYTES, RESERVE_SHARE * total) for available, total in self._amounts()
            )
        return self._short

    def _amounts(self) -> Iterator[Amounts]:
        with suppress(OSError, KeyError, ValueError):
            machine = _table(self._meminfo)
            yield machine["MemAvailable:"] * 1024, machine["MemTotal:"] * 1024
        for folder in self._groups:
            with suppress(OSError, KeyError, ValueError):
                limit = int(_read(folder, "memory.max"))  # ValueError for "max"
                used = int(_read(folder, "memory.current"))
                # Cached files count as used, and are given up when memory is needed.
                yield limit - used + _table(os.path.join(folder, "memory.stat"))["inactive_file"], limit


def _groups(membership: str, cgroups: str) -> Iterator[str]:
    """The folders of this process's control group and of those around it (cgroups of version 2)."""
    with suppress(OSError):
        for line in _read(membership).splitlines():
            if line.startswith("0::"):
                path = line[3:].strip("/")
                while path:
                    yield os.path.join(cgroups, path)
                    path = os.path.dirname(path)
                yield cgroups


def _table(path: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, _read(path).splitlines())}


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="ascii") as file:
        return file.read()
