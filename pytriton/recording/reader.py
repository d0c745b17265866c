"""Reads the files of a recording, in the order in which the requests arrived."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from glob import escape, glob
from heapq import heappop, heappush
from itertools import count, takewhile
from pathlib import Path
from typing import IO

import numpy as np

from pytriton.recording.format import (
    CHECKSUM_BYTES,
    HEAD,
    MAGIC,
    MOST_ARRAYS,
    RecordedRequest,
    RecordingError,
    checksum,
    decode,
)

__all__ = ["RecordedFiles", "read"]


RENAMED_S = 1.0


class RecordedFiles:
    """The requests in some files, by their arrival; use it as a context manager.

    The files are checked when they are opened: one that ends within a record, as after a crash, or that is damaged, has
    the requests before that place.

    Args:
        paths: Each is read with the older files of its recording, ``PATH.1``, ``PATH.2`` and so on; none is read twice.

    Raises:
        FileNotFoundError: There is no such file; another OSError if it cannot be opened.
        RecordingError: One is no recording.

    Attributes:
        notes: What is missing of which file.
    """

    def __init__(self, *paths: str | Path) -> None:
        self.notes: list[str] = []
        self._files: list[IO[bytes]] = []
        self._arrivals = array("d")
        self._places = array("q")  # file, offset and bytes of each block, and how many requests it has
        with ExitStack() as opened:
            for path, file in _opened(paths, opened):
                self._files.append(file)
                self._scan(path, file)
            self._to_close = opened.pop_all()
        self._order = np.argsort(np.asarray(self._arrivals), kind="stable").tolist()

    def __enter__(self) -> RecordedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._to_close.close()

    def __len__(self) -> int:
        return sum(self._places[3::4])

    def __iter__(self) -> Iterator[RecordedRequest]:
        waiting: list[tuple[float, int, int, int, RecordedRequest]] = []  # a heap of what the records so far have
        numbers, arrays = count(), 0  # of all that waits
        for index in self._order:
            number, offset, size, requests = self._places[4 * index : 4 * index + 4]
            while waiting and (waiting[0][0] < self._arrivals[index] or arrays > MOST_ARRAYS):
                arrays -= waiting[0][3]
                yield heappop(waiting)[-1]
            block = os.pread(self._files[number].fileno(), size, offset)
            for request in decode(self._arrivals[index], requests, block):
                weight = 1 + len(request.inputs) + len(request.responses)
                heappush(waiting, (request.arrival, request.index, next(numbers), weight, request))
                arrays += weight
        while waiting:
            yield heappop(waiting)[-1]

    def _scan(self, path: Path, file: IO[bytes]) -> None:
        begin = file.read(len(MAGIC))
        if not MAGIC.startswith(begin):
            raise RecordingError(f"{path} is no recording, or one of another version of pytriton")
        size, end = os.fstat(file.fileno()).st_size, len(begin)
        if end < len(MAGIC):
            self.notes.append(f"{path} ends within its header")
        while end < size:
            head = file.read(HEAD.size)
            length, arrival, requests, expected = HEAD.unpack(head) if len(head) == HEAD.size else (size, 0.0, 0, 0)
            if end + HEAD.size + length > size:
                self.notes.append(f"{path} ends within a record, at byte {end} of {size}")
                return
            if checksum(head[:-CHECKSUM_BYTES], file.read(length)) != expected or not np.isfinite(arrival):
                self.notes.append(f"{path} is damaged from byte {end} of {size} on")
                return
            self._arrivals.append(arrival)
            self._places.extend((len(self._files) - 1, end + HEAD.size, length, requests))
            end += HEAD.size + length


def _opened(paths: Sequence[str | Path], opened: ExitStack) -> Iterator[tuple[Path, IO[bytes]]]:
    """All files of some recordings. One that goes on may rename them meanwhile: then they are opened once more."""
    deadline, before = time.monotonic() + RENAMED_S, None
    while paths:
        found: dict[tuple[int, int], tuple[Path, IO[bytes]]] = {}
        try:
            for path in (each for newest in paths for each in _with_older(Path(newest))):
                file = opened.enter_context(path.open("rb"))
                status = os.fstat(file.fileno())
                found.setdefault((status.st_dev, status.st_ino), (path, file))
        except FileNotFoundError:
            if time.monotonic() > deadline or not any(glob(f"{escape(str(path))}.*") for path in paths):
                raise
            found.clear()
        if found and (before == [*found] or time.monotonic() > deadline):
            return iter(found.values())
        before = [*found]
        opened.close()
        time.sleep(0.001)
    return iter(())


def _with_older(path: Path) -> Iterator[Path]:
    yield path
    yield from takewhile(Path.is_file, (Path(f"{path}.{number}") for number in count(1)))


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[RecordedRequest]:
    """The requests of a recording, by their arrival; raises as :class:`RecordedFiles`."""
    with RecordedFiles(*([paths] if isinstance(paths, (str, Path)) else paths)) as files:
        yield from files
