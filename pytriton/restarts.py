"""When what failed is tried again, and whether a process that died is: of the server, of the app, a worker."""

from __future__ import annotations

from collections import deque

__all__ = ["Backoff", "RestartPolicy"]

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 30.0
HEALTHY_S = PERIOD_S = 60.0


class Backoff:
    """The pauses between attempts in a row: each is twice as long as the one before it, up to a longest one."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The next pause, in seconds."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the first pause again: an attempt has succeeded."""
        self._next_s = self._first_s


class RestartPolicy:
    """The restart after the first exit in a row is immediate; further ones wait, twice as long each time.

    A process that was ready for ``HEALTHY_S`` ends the row.

    Args:
        max_restarts: In a minute; after one more exit there is no restart. None: for ever.
        first_backoff_s: Before the second restart in a row.

    Attributes:
        exits: Within the minute that ends with the last exit; at most ``max_restarts + 1``.
        row: Exits in a row.
    """

    def __init__(
        self,
        max_restarts: int | None = None,
        first_backoff_s: float = FIRST_BACKOFF_S,
        max_backoff_s: float = MAX_BACKOFF_S,
    ) -> None:
        self.exits = self.row = 0
        self._max_restarts = max_restarts
        self._backoff = Backoff(first_backoff_s, max_backoff_s)
        self._moments: deque[float] = deque(maxlen=1 if max_restarts is None else max_restarts + 1)
        self._ready_since: float | None = None

    def record_ready(self, now: float) -> None:
        """Note that the process answers, in seconds of any monotonic clock."""
        self._ready_since = now

    def record_exit(self, now: float) -> float | None:
        """Count an exit, or an attempt that failed; returns the seconds to wait before the restart, None if none.

        Args:
            now: As for :meth:`record_ready`.
        """
        if self._ready_since is not None and now - self._ready_since >= HEALTHY_S:
            self.row = 0
            self._backoff.reset()
        self._ready_since = None
        self.row += 1
        self._moments.append(now)
        self.exits = sum(now - moment < PERIOD_S for moment in self._moments)
        if self._max_restarts is not None and self.exits > self._max_restarts:
            return None
        return self._backoff.next_s() if self.row > 1 else 0.0
