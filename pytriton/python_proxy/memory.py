"""The server's memory: how much is available, and the permissions of the part that it shares with this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

RESERVE_BYTES = 512 << 20
RESERVE_SHARE = 0.05  # where that is less

SHARED_FOLDER = "/dev/shm/"
OWNER_ALONE = 0o600

# The files of limit and use, and what part of the use are files that the kernel gives up when memory is needed.
VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
VERSION_2 = "memory.max", "memory.current", "inactive_file"

Amounts = tuple[int, int]
"""Bytes available, and in all."""
Group = tuple[str, tuple[str, str, str]]
"""A control group's folder, and the names in it."""


class Memory:
    """The memory of the machine and of the control groups, such as containers, that this process runs in.

    Args:
        proc: Where the kernel describes machine and process.
        cgroups: Where it describes control groups.
    """

    def __init__(self, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self._meminfo = os.path.join(proc, "meminfo")
        self._groups = list(_groups(os.path.join(proc, "self", "cgroup"), cgroups))
        self._accepted: set[int] = set()  # positions among the amounts

    def is_short(self) -> bool:
        """Whether one of them has less than its reserve available. Takes about 0.2 ms."""
        return any(self._is_short(*each) for each in enumerate(self._amounts()))

    def accept(self) -> None:
        """Accept a shortage as normal: half of the reserve suffices until all of it is available again.

        A server keeps much of the memory that it has used, and reuses it.
        """
        for position, (available, total) in enumerate(self._amounts()):
            if available < _reserve(total):
                self._accepted.add(position)

    def available_bytes(self) -> int:
        """What the one with the least has available; 0 if none is known."""
        return max(0, min((available for available, _ in self._amounts()), default=0))

    def _is_short(self, position: int, amounts: Amounts) -> bool:
        available, total = amounts
        if available >= _reserve(total):
            self._accepted.discard(position)
        return available < _reserve(total) / (2 if position in self._accepted else 1)

    def _amounts(self) -> Iterator[Amounts]:
        with suppress(OSError, KeyError, ValueError):
            machine = _table(self._meminfo)
            yield machine["MemAvailable:"] * 1024, machine["MemTotal:"] * 1024
        for folder, (limit_name, use_name, files_name) in self._groups:
            with suppress(OSError, KeyError, ValueError):
                limit = int(_read(folder, limit_name))  # ValueError for "max"
                files = _table(os.path.join(folder, "memory.stat"))[files_name]
                yield limit - int(_read(folder, use_name)) + files, limit


def _reserve(total: int) -> float:
    return min(RESERVE_BYTES, RESERVE_SHARE * total)


def _groups(membership: str, cgroups: str) -> Iterator[Group]:
    """This process's control groups of memory, and those around them."""
    with suppress(OSError):
        for line in _read(membership).splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                root, names = cgroups, VERSION_2
            elif "memory" in controllers.split(","):
                root, names = os.path.join(cgroups, "memory"), VERSION_1
            else:
                continue
            while path.strip("/"):
                yield os.path.join(root, path.strip("/")), names
                path = os.path.dirname(path)
            yield root, names


def _table(path: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, _read(path).splitlines())}


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="ascii") as file:
        return file.read()


def close_to_others(maps: str = "/proc/self/maps") -> None:
    """Remove other users' permission to read the shared memory.

    All tensors pass through it, and the Python backend makes it readable by all users, whatever the umask is.

    A process that opened it before this call can still read it.
    """
    with open(maps, encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in file if f" {SHARED_FOLDER}" in line}
    for path in paths:
        with suppress(OSError):  # removed, or another user's
            os.chmod(path, OWNER_ALONE)
