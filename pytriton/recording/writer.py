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
        self._rotate()

    def write(self, records: Sequence[bytes]) -> None:
        """Append records, whole; raises OSError if they cannot be written, and may be called again then."""
        together: list[bytes] = []  # in one call of the system
        size = self._size
        for record in records:
            if self._descriptor < 0 or (size > len(MAGIC) and size + len(record) > self._file_bytes):
                self._append(b"".join(together))
                together.clear()
                self._rotate()
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

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.lexists(older):
                os.replace(older, f"{self._path}.{number}")
        self._path.unlink(missing_ok=True)
        # A symbolic link of another user would be followed otherwise.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor, self._size = os.open(self._path, flags, 0o600), 0
        self._append(MAGIC)

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Outbox:
    """A bounded queue whose items a thread hands to a function; whoever puts an item never waits for that.

    Args:
        consume: Gets the items that wait, a few times a second, and perhaps none at the end. What it raises is logged,
            once.
    """

    def __init__(self, consume: Callable[[list[Any]], None], name: str) -> None:
        self._consume = consume
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes = 0  # an approximation: threads may count at the same time
        self._wake, self._closing = threading.Event(), threading.Event()
        self._is_open, self._has_failed = True, False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, take nothing: it has no thread."""
        self._is_open = False
        self._wake, self._closing = threading.Event(), threading.Event()

    def put(self, item: Any, size: int) -> bool:
        """Leave an item of so many bytes; False if there is no room."""
        if not self._is_open or len(self._items) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
            return False
        self._bytes += size
        self._items.append((item, size))
        if not self._wake.is_set():
            self._wake.set()
        return True

    def close(self) -> list[Any]:
        """Take no more items, and wait for some seconds until those that wait are consumed; returns the others."""
        self._is_open = False
        self._closing.set()
        self._wake.set()
        self._thread.join(FLUSH_S)
        left = [item for item, _ in self._items]
        self._items.clear()
        return left

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(COLLECT_S)
            self._wake.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while True:
            items: list[Any] = []
            while self._items and len(items) < MOST_AT_ONCE:
                item, size = self._items.popleft()
                self._bytes -= size
                items.append(item)
            try:
                if items or self._closing.is_set():
                    self._consume(items)
            except Exception as error:
                if not self._has_failed:
                    self._has_failed = True
                    LOGGER.exception("a recording loses requests: %s", error)
            if not items:
                return
