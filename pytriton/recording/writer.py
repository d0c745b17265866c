"""Writes records: files that take turns, and a queue before what may be slow."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import TypeVar

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.recording.format import MAGIC, Group, requests_in

__all__ = ["Outbox", "RotatingFile", "WriteError"]

LOGGER = get_logger("pytriton.recording")

MOST_WAITING_BYTES = 64 * 2**20
MOST_WAITING = 20_000
COLLECT_S = 0.05  # so that a thread does not wake for each request
FLUSH_S = 10.0
MOST_AT_ONCE = 64
MOST_BUSY_S = 0.0005  # at a time; a thread keeps the interpreter for 5 ms otherwise

Make = Callable[[], Sequence[Group | bytes]]
"""Returns groups of requests to make records of, or records."""

T = TypeVar("T")


class WriteError(OSError):
    """Records could not be written.

    Attributes:
        written: How many of the records that were given were written before.
    """

    def __init__(self, written: int, error: OSError) -> None:
        super().__init__(*error.args)
        self.written = written


class RotatingFile:
    """The files of a recording, of which the newest is written. Only this user may read them. For one thread.

    Files of an earlier recording that has left more than ``files`` are removed, because a reader would read them, too.

    Raises:
        OSError: It cannot be written there; IsADirectoryError if the path of any of the files is that of a folder,
            FileExistsError if a file that is there is no recording.
    """

    def __init__(self, path: Path, file_bytes: int, files: int) -> None:
        self._path, self._file_bytes, self._files = path.absolute(), file_bytes, files
        self._descriptor, self._size = -1, 0
        self._refuse_others()
        self._begin()
        try:
            self._remove_more()
        except OSError:
            self.close()
            raise

    def write(self, records: Sequence[bytes]) -> None:
        """Append records, whole.

        Raises:
            WriteError: Some cannot be written, or none. It may be called again.
        """
        together: list[bytes] = []  # in one call of the system
        size, written = self._size, 0
        try:
            for record in records:
                if self._descriptor < 0 or (size > len(MAGIC) and size + len(record) > self._file_bytes):
                    self._append(b"".join(together))
                    written += len(together)
                    together.clear()
                    self._begin()
                    size = self._size
                together.append(record)
                size += len(record)
            self._append(b"".join(together))
        except OSError as error:
            raise WriteError(written, error) from error

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # the disk is full
            raise
        self._size += len(data)

    def _begin(self) -> None:
        """Begin the newest file. Those before it become older, as far as their numbers have no gap."""
        self.close()
        self._refuse_folders()
        free = 0
        while free < self._files - 1 and os.path.lexists(self._name(free)):
            free += 1
        for number in range(free, 0, -1):
            os.replace(self._name(number - 1), self._name(number))
        self._path.unlink(missing_ok=True)
        # A symbolic link of another user would be followed otherwise.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor, self._size = os.open(self._path, flags, 0o600), 0
        try:
            self._append(MAGIC)
        except OSError:
            self.close()
            self._path.unlink()  # so that the next attempt finds no file to make older
            raise

    def _remove_more(self) -> None:
        """Remove files that an earlier recording has left with higher numbers, up to the first gap."""
        more = takewhile(Path.is_file, map(self._name, count(self._files)))
        for path in reversed([*more]):  # so that what may remain has no gap before it
            path.unlink()

    def _refuse_others(self) -> None:
        """Raise FileExistsError if a file is there that a reader of this recording could not read."""
        there = {number: entry for number, entry in self._numbered() if entry.is_file()}
        run = takewhile(there.__contains__, count(1))  # as the newest one will be there
        for number in {*run, *(number for number in there if number < self._files)}:
            with open(there[number], "rb") as file:
                if not MAGIC.startswith(file.read(len(MAGIC))):
                    what = "it is no recording, or one of another version of pytriton; move it away"
                    raise FileExistsError(errno.EEXIST, what, there[number].path)

    def _refuse_folders(self) -> None:
        """Raise IsADirectoryError if a folder has the path of a file, which would move it away."""
        for number, entry in self._numbered():
            if number < self._files and entry.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), entry.path)

    def _numbered(self) -> Iterator[tuple[int, os.DirEntry[str]]]:
        """What has the path of a file of the recording, with the file's number: 0 is the newest."""
        numbered = re.compile(re.escape(self._path.name) + r"(?:\.([1-9][0-9]*))?")
        with os.scandir(self._path.parent) as entries:
            for entry in entries:
                match = numbered.fullmatch(entry.name)
                if match is not None:
                    yield int(match[1] or 0), entry

    def _name(self, number: int) -> Path:
        return Path(f"{self._path}.{number}") if number else self._path

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Outbox:
    """Makes records and writes them, on a thread of its own behind a bounded queue, and counts what they come to.

    Args:
        combine: Makes records of groups.
        write: Gets records, and how many requests were dropped and too large since it was last called, once more
            without records at the end. It raises WriteError, or any other error if all the records are lost, which is
            logged once.
        on_close: Called on the same thread after the last records.
    """

    def __init__(
        self,
        combine: Callable[[Sequence[Group]], Iterable[bytes]],
        write: Callable[[list[bytes], int, int], object],
        name: str,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._combine, self._write, self._on_close = combine, write, on_close
        self._waiting: deque[tuple[Make, int, int]] = deque()  # with numbers of requests and bytes
        self._bytes, self._is_open, self._has_failed = 0, True, False
        self._counts: Counter[str] = Counter()
        self._unreported: Counter[str] = Counter()  # not told to write() yet
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, take nothing: it has no thread."""
        self._changed, self._is_open = threading.Condition(), False

    def counts(self) -> dict[str, int]:
        """Requests that were ``recorded``, ``dropped`` and ``too_large``, and ``bytes`` of records; as far as any."""
        with self._changed:
            return {**self._counts}

    def count(self, **requests: int) -> None:
        """Add to the counts."""
        with self._changed:
            self._counts.update(requests)
            self._unreported.update(requests)

    def lose(self, requests: int, error: Exception) -> None:
        """Count requests of which no records can be made."""
        self.count(dropped=requests)
        LOGGER.debug("requests are not recorded", exc_info=error)

    def put(self, make: Make, requests: int, size: int) -> None:
        """Have some requests written soon. Requests for which there is no room are dropped.

        Args:
            size: Bytes that ``make`` keeps until then.
        """
        with self._changed:
            if not self._is_open or len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
                self.count(dropped=requests)
                return
            self._bytes += size
            self._waiting.append((make, requests, size))
            if len(self._waiting) == 1:
                self._changed.notify_all()

    def close(self) -> None:
        """Take no more, and wait for some seconds until all is written; what is not by then is dropped."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        self._thread.join(FLUSH_S)
        self.count(dropped=sum(requests for _, requests, _ in self._take(MOST_WAITING)))
        self._tell([])

    def _take(self, most: int) -> list[tuple[Make, int, int]]:
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._bytes -= sum(size for _, _, size in taken)
            return taken

    def _run(self) -> None:
        is_last = False
        try:
            while not is_last:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or not self._is_open)
                    is_last = self._changed.wait_for(lambda: not self._is_open, COLLECT_S)
                while taken := self._take(MOST_AT_ONCE):
                    self._make_and_write(taken)
        finally:
            self._on_close()

    def _make_and_write(self, taken: Sequence[tuple[Make, int, int]]) -> None:
        groups: list[Group] = []
        records: list[bytes] = []
        for make, requests, _ in self._unhurried(taken):
            try:
                for each in make():
                    if isinstance(each, bytes):
                        records.append(each)
                    else:
                        groups.append(each)
            except Exception as error:
                self.lose(requests, error)
        ready = len(records)
        try:
            records += self._unhurried(self._combine(groups))
        except Exception as error:
            made = sum(map(requests_in, records[ready:]))
            self.lose(sum(len(group.indices) for group in groups) - made, error)
        try:
            self._tell(records)
        except Exception as error:
            written = error.written if isinstance(error, WriteError) else 0
            self._count_recorded(records[:written])
            self.count(dropped=sum(map(requests_in, records[written:])))
            if not self._has_failed:
                self._has_failed = True
                LOGGER.exception("a recording loses requests: %s", error)
        else:
            self._count_recorded(records)

    def _unhurried(self, each: Iterable[T]) -> Iterator[T]:
        """The same. Threads that answer requests, and may wait for the interpreter, get it now and then."""
        give_way = time.perf_counter() + MOST_BUSY_S
        for one in each:
            yield one
            if self._is_open and time.perf_counter() > give_way:
                time.sleep(0)
                give_way = time.perf_counter() + MOST_BUSY_S

    def _count_recorded(self, records: Sequence[bytes]) -> None:
        if records:
            self.count(recorded=sum(map(requests_in, records)), bytes=sum(map(len, records)))

    def _tell(self, records: list[bytes]) -> None:
        with self._changed:
            lost, self._unreported = self._unreported, Counter()
        self._write(records, lost["dropped"], lost["too_large"])
