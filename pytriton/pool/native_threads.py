"""The threads of this process that Python has not started, and the libraries whose code they run."""

from __future__ import annotations

import os
import struct
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

__all__ = ["native_threads"]

TOP_BYTES = 16384  # of a thread's stack, which has its id and its first calls
# What starts threads in the C library, and is nobody's own.
COMMON = ("libc.so", "libc-", "libpthread", "libstdc++", "ld-linux", "libpython", "python")


def native_threads() -> Counter[tuple[str, str]]:
    """The threads beside the main thread: of each library, by its path, and name of a thread, how many there are.

    The path is empty if the library is not found.
    """
    found: Counter[tuple[str, str]] = Counter()
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.update([_library_of(thread)] if thread != os.getpid() else [])
    return found


class _Mapping(NamedTuple):
    start: int
    end: int
    rights: str
    path: str


def _library_of(thread: int) -> tuple[str, str]:
    """The path of the library whose code a thread runs, empty if it is not found, and the thread's name."""
    name = Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    mappings = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, path = (line + " ").split(" ", 5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        mappings.append(_Mapping(start, end, rights, path.strip()))
    code = [each for each in mappings if "x" in each.rights and each.path.startswith("/")]
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for guard, stack in pairwise(mappings):
            if not guard.rights.startswith("---") or guard.end != stack.start or stack.path:
                continue
            size = min(TOP_BYTES, stack.end - stack.start)
            memory.seek(stack.end - size)
            top = memory.read(size)
            if struct.pack("i", thread) not in top[-4096:]:  # where the C library keeps it
                continue
            for (word,) in reversed([*struct.iter_unpack("N", top)]):
                path = next((each.path for each in code if each.start <= word < each.end), "")
                if path and not os.path.basename(path).startswith(COMMON):
                    return path, name
    return "", name
