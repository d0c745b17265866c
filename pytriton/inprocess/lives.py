"""Which servers of this process live, and what has to wait until none does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

__all__ = ["Lives"]


class Lives:
    """Deletes servers together, when all have stopped.

    The server's library has one pool of memory for all servers of a process. The first that is made brings it, and each
    that is deleted takes it along.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living = 0
        self._deletions: list[Callable[[], object]] = []

    def begin(self) -> None:
        """A server is about to be made."""
        with self._lock:
            self._living += 1

    def end(self, delete: Callable[[], object] | None = None) -> None:
        """It was not made, or has stopped.

        Args:
            delete: Deletes it; None: it cannot be.
        """
        with self._lock, ExitStack() as deletions:
            self._living -= 1
            if delete is not None:
                self._deletions.append(delete)
            while not self._living and self._deletions:
                deletions.callback(self._deletions.pop())
