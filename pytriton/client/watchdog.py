"""A time limit for waits that have none of their own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from pytriton import forks

__all__ = ["Watchdog"]

_IDLE_S = 5.0


class Watchdog:
    """Does something about a wait that takes too long, from a thread that ends when there was no wait for a while.

    One wait at a time. To watch the next one costs little, for the thread sleeps on until the first would be over.
    """

    def __init__(self) -> None:
        self._watch_nothing()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, begin anew: there is no thread."""
        self._watch_nothing()

    def _watch_nothing(self) -> None:
        self._condition = threading.Condition()
        self._deadline = math.inf
        self._act: Callable[[], object] | None = None
        self._expired = False
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    def start(self, timeout_s: float, act: Callable[[], object]) -> None:
        """Have ``act`` called by the thread unless :meth:`stop` is within ``timeout_s`` seconds."""
        with self._condition:
            self._deadline = time.monotonic() + timeout_s
            self._act, self._expired = act, False
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="pytriton-watchdog", daemon=True)
                self._thread.start()
            elif self._deadline < self._wakes_at:
                self._condition.notify()

    def stop(self) -> bool:
        """The wait is over; whether it had taken too long."""
        with self._condition:
            self._deadline, self._act = math.inf, None
            return self._expired

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            thread, self._thread = self._thread, None
            self._condition.notify()
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        with self._condition:
            idle = False
            while self._thread is threading.current_thread():
                left_s = self._deadline - time.monotonic()
                if left_s <= 0 and self._act is not None:
                    self._act()
                    self._deadline, self._act, self._expired = math.inf, None, True
                    continue
                if math.isinf(left_s) and idle:
                    self._thread = None
                    return
                idle = math.isinf(left_s)
                pause_s = min(left_s, _IDLE_S)
                self._wakes_at = time.monotonic() + pause_s
                self._condition.wait(pause_s)
