"""Waits until a model has had no request for some time, and acts then."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from pytriton.threads import keep_running

__all__ = ["IdleWatch"]

SHORTEST_PAUSE_S = 0.01


class IdleWatch:
    """Acts, on a thread of its own, each time that a model has been idle for long enough, until :meth:`stop`.

    Args:
        name: Of the thread.
        idle_s: How long the model has to be idle.
        idle_since_s: How long it has been idle, in seconds; infinite if nothing is to be done.
        act: May do nothing, and is then called again.
    """

    def __init__(self, name: str, idle_s: float, idle_since_s: Callable[[], float], act: Callable[[], object]) -> None:
        self._idle_s = idle_s
        self._idle_since_s, self._act = idle_since_s, act
        self._stopped = threading.Event()
        self._thread = keep_running(self._watch, name)

    def _watch(self) -> None:
        pause_s = self._idle_s
        while not self._stopped.wait(pause_s):
            since_s = self._idle_since_s()
            if self._idle_s <= since_s < math.inf:
                self._act()
            pause_s = self._idle_s - since_s if since_s < self._idle_s else self._idle_s
            pause_s = max(SHORTEST_PAUSE_S, pause_s)

    def stop(self) -> None:
        """Act no more. Does not wait for that. Thread-safe."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the end after :meth:`stop`."""
        self._thread.join()
