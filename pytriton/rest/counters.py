"""Counters in memory that several processes share: each process writes its own, and reads those of all.

The memory is a file without a name (``memfd_create``) per process, which outlives the process: the one that takes its
place counts on. It holds:

=================  =====================================================================================
8 bytes            length in bytes of the names that follow the values
8 bytes each       the values, of :data:`VALUES` of them; the last :data:`SCRATCH` belong to no name
the rest           for each name: its length and its number of values, 2 bytes each, and the name in UTF-8
=================  =====================================================================================
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence

__all__ = ["MEMORY_BYTES", "Counters", "totals"]

MEMORY_BYTES = 2 << 20  # pages that were never written take none
VALUES = 1 << 17
SCRATCH = 512  # where values are counted for which there is no room any more
USED = struct.Struct("=Q")
NAME = struct.Struct("=HH")
NAMES_AT = USED.size + 8 * VALUES


class Counters:
    """The counters of one process, of which one thread may write.

    Args:
        file: Descriptor of the memory, which this maps and does not close; None makes memory of this process alone.

    Attributes:
        values: All values, to be added to at the places that :meth:`place` gives.
    """

    def __init__(self, file: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if file is None else file, MEMORY_BYTES)
        self.values = memoryview(self._memory)[USED.size : NAMES_AT].cast("d")
        self._places = {name: place for name, place, _ in self}
        self._next = max((place + width for _, place, width in self), default=0)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Each name, the place of its first value, and the number of its values."""
        (used,) = USED.unpack_from(self._memory)
        offset = place = 0
        while offset < used:
            length, width = NAME.unpack_from(self._memory, NAMES_AT + offset)
            start = NAMES_AT + offset + NAME.size
            yield self._memory[start : start + length].decode(), place, width
            offset, place = offset + NAME.size + length, place + width

    def read(self, name: str) -> list[float]:
        """The values of a name; none if it has none."""
        return next(([*self.values[place : place + width]] for each, place, width in self if each == name), [])

    def place(self, name: str, width: int = 1) -> int:
        """Where a name's values begin; they are 0 at first.

        Args:
            name: Of the values.
            width: How many they are, at most ``SCRATCH``.
        """
        if name not in self._places:
            self._places[name] = self._add(name.encode(), width)
        return self._places[name]

    def _add(self, name: bytes, width: int) -> int:
        (used,) = USED.unpack_from(self._memory)
        record = NAME.pack(len(name), width) + name
        start = NAMES_AT + used
        if start + len(record) > MEMORY_BYTES or self._next + width > VALUES - SCRATCH:
            return VALUES - SCRATCH
        self._memory[start : start + len(record)] = record
        USED.pack_into(self._memory, 0, used + len(record))  # from now on, other processes see it
        place, self._next = self._next, self._next + width
        return place


def totals(processes: Sequence[Counters]) -> dict[str, list[float]]:
    """The values of each name, added over all processes."""
    result: dict[str, list[float]] = {}
    for counters in processes:
        for name, place, width in counters:
            values: list[float] = [*counters.values[place : place + width]]
            before = result.get(name)
            result[name] = values if before is None else [a + b for a, b in zip(before, values, strict=True)]
    return result
