"""Futures whose callbacks run in a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["CallbackThread", "DetachedFuture"]

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Any]


class CallbackThread:
    """Runs callbacks one after the other, in a thread that starts with the first one.

    They may block and wait for other futures: nothing but callbacks waits for them.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Collecting garbage may call stop() while this thread is within run().
        self._lock = threading.RLock()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Work) -> None:
        """Run one callback soon; after :meth:`stop`, here and now."""
        with self._lock:
            stopped = self._stopped
            if not stopped:
                if self._thread is None:
                    self._thread = threading.Thread(target=_run_all, args=(self._queue,), name=self._name, daemon=True)
                    self._thread.start()
                self._queue.put(work)
        if stopped:
            _run(work)

    def stop(self) -> None:
        """End the thread when all callbacks have run."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end, unless a callback asks for it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


class DetachedFuture(Future[T]):
    """A future whose callbacks do not hold up the thread that sets its result.

    Args:
        callbacks: Runs them.
    """

    def __init__(self, callbacks: CallbackThread) -> None:
        super().__init__()
        self._detached = callbacks

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Call ``fn`` with this future when it is done, in the callbacks' thread; at once if it is done already."""
        if self.done():
            super().add_done_callback(fn)
        else:
            super().add_done_callback(lambda future: self._detached.run(lambda: fn(future)))

    def fail_after_fork(self, error: Exception) -> None:
        """In a forked child, be done with an error and call no callbacks: the parent alone gets the result."""
        # Members of the base that are not public: another thread may have held the lock at the fork.
        self._condition = threading.Condition()
        self._done_callbacks: list[Callable[[Future[T]], Any]] = []
        if not self.done():
            self.set_exception(error)

    def when_done(self, fn: Callable[[], None]) -> None:
        """Call ``fn``, which must be brief, in the very thread that finishes or cancels the future."""
        super().add_done_callback(lambda _: fn())


def _run_all(queue: SimpleQueue[Work | None]) -> None:
    while (work := queue.get()) is not None:
        _run(work)
        del work  # while waiting for the next one, nothing of this one is kept


def _run(work: Work) -> None:
    try:
        work()
    except (Exception, SystemExit):  # a callback does not end the thread of all others
        LOGGER.exception("a callback of a future failed")
