"""How often a worker has died lately, and what follows from that."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Deaths", "pause_s"]

LONGEST_PAUSE_S = 10.0


class Deaths:
    """The deaths of one worker.

    Args:
        limit: That many in a period are borne.
        period_s: Seconds.
    """

    def __init__(self, limit: int, period_s: float) -> None:
        self._limit = limit
        self._period_s = period_s
        self._moments: deque[float] = deque(maxlen=limit + 1)

    def add(self) -> None:
        """One more, now."""
        self._moments.append(time.monotonic())

    def recent(self) -> int:
        """Those of the period; not more than the limit and one."""
        now = time.monotonic()
        return sum(now - moment < self._period_s for moment in self._moments)

    def are_too_many(self) -> bool:
        """Whether the worker is not to be started again."""
        return self.recent() > self._limit


def pause_s(deaths: int) -> float:
    """Seconds before a worker is started again after so many deaths: none after the first one, then more and more."""
    return 0.0 if deaths < 2 else min(0.25 * 2.0 ** (deaths - 1), LONGEST_PAUSE_S)
