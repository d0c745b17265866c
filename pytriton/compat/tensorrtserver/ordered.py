"""A pool of threads that keeps the order of what belongs together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["OrderedPool"]

Work = Callable[[], None]


class OrderedPool:
    """Runs works in threads: those with the same key one after the other, all others at once.

    Args:
        threads: Works at once; more wait for their turn.
        name: Prefix of the threads' names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[Work]] = {}
        """Works that follow one which has been submitted, by their key."""

    def submit(self, work: Work, key: int = 0) -> None:
        """Run a work, which must not raise, soon.

        Args:
            work: To run.
            key: Of the works that run in the order in which they were submitted; 0 is none.

        Raises:
            RuntimeError: This is shut down.
        """
        if not key:
            self._executor.submit(work)
            return
        with self._lock:
            if key in self._waiting:
                self._waiting[key].append(work)
                return
            self._executor.submit(self._run, work, key)
            self._waiting[key] = deque()

    def shutdown(self) -> None:
        """Take no more works, and wait for all."""
        self._executor.shutdown()

    def _run(self, work: Work | None, key: int) -> None:
        while work is not None:
            work()
            work = self._next(key)

    def _next(self, key: int) -> Work | None:
        with self._lock:
            if self._waiting[key]:
                return self._waiting[key].popleft()
            del self._waiting[key]
            return None
