"""Writes records: files that take turns, and a queue before what may be slow."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.recording.format import MAGIC

__all__ = ["Outbox", "RotatingFile"]

LOGGER = get_logger("pytriton.recording")

MOST_WAITING_BYTES = 64 * 2**20
MOST_WAITING = 20_000
COLLECT_S = 0.05  # so that a thread does not wake for each request
FLUSH_S = 10.0
MOST_AT_ONCE = 256


class RotatingFile:
    """The files of a recording, of which the newest is written. Only this user may read them. For one thread.

    Raises:
        OSError: It cannot be written there.
    """

    def __init__(self, path: Path, file_bytes: int, files: int) -> None:
        self._path, self._file_bytes, self._files = path.absolute(), file_bytes, files
        self._descriptor, self._size = -1, 0
        self._begin()

    def write(self, records: Sequence[bytes]) -> None:
        """Append records, whole; raises OSError if they cannot be written, and may be called again then."""
        together: list[bytes] = []  # in one call of the system
        size = self._size
        for record in records:
            if self._descriptor < 0 or (size > len(MAGIC) and size + len(record) > self._file_bytes):
                self._append(b"".join(together))
                together.clear()
                self._begin()
                size = self._size
            together.append(record)
            size += len(record)
        self._append(b"".join(together))

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

    def _name(self, number: int) -> Path:
        return Path(f"{self._path}.{number}") if number else self._path

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Outbox:
    """A bounded queue before a thread of its own. Thread-safe.

    Args:
        consume: Gets the items that wait, a few times a second. What it raises is logged, once.
        on_close: Called on the same thread, when nothing follows.
    """

    def __init__(
        self, consume: Callable[[list[Any]], None], name: str, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._consume, self._on_close = consume, on_close
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes, self._is_open, self._has_failed = 0, True, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, take nothing: it has no thread."""
        self._changed, self._is_open = threading.Condition(), False

    def put(self, item: Any, size: int) -> bool:
        """Leave an item of so many bytes; False if there is no room."""
        with self._changed:
            if not self._is_open or len(self._items) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
                return False
            self._bytes += size
            self._items.append((item, size))
            if len(self._items) == 1:
                self._changed.notify_all()
            return True

    def close(self) -> list[Any]:
        """Take no more items, and wait for some seconds until those that wait are consumed; returns the others."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        self._thread.join(FLUSH_S)
        return self._take(MOST_WAITING)

    def _take(self, most: int) -> list[Any]:
        with self._changed:
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._bytes -= sum(size for _, size in taken)
        return [item for item, _ in taken]

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._items or not self._is_open)
                is_last = self._changed.wait_for(lambda: not self._is_open, COLLECT_S)
            while items := self._take(MOST_AT_ONCE):
                try:
                    self._consume(items)
                except Exception as error:
                    if not self._has_failed:
                        self._has_failed = True
                        LOGGER.exception("a recording loses requests: %s", error)
        self._on_close()
