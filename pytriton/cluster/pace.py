"""How many batches a worker elsewhere gets at a time."""

from __future__ import annotations

import time

__all__ = ["WorkerPace"]

WEIGHT = 0.2  # of the last batch
LEAST_SHARE, MOST_SHARE = 0.2, 0.35  # of travel in the callable's time: one batch below the first, two above the second
MEASURE_S = 1.0


class WorkerPace:
    """How many batches hide the time that they travel to a worker that works on one after the other, and back.

    One, if that time is short beside the time of the callable: then two would only be smaller. Else two.

    Attributes:
        batches: How many.
    """

    def __init__(self) -> None:
        self.batches = 2
        self._busy_s = self._travel_s = 0.0
        self._due = 0.0

    @property
    def is_unsure(self) -> bool:
        """Whether a batch should be sent when the worker has no other one, so that its travel can be measured."""
        return time.monotonic() >= self._due

    def answered(self, busy_s: float, took_s: float) -> bool:
        """Count a batch; whether another number of batches is right now.

        Args:
            busy_s: Seconds in the worker.
            took_s: Seconds from sending it to its answer; 0 if it waited for another one meanwhile.
        """
        self._busy_s = _smooth(self._busy_s, busy_s)
        if took_s:
            self._travel_s = _smooth(self._travel_s, max(took_s - busy_s, 1e-6))
            self._due = time.monotonic() + MEASURE_S
        if not self._travel_s:
            return False
        before, share = self.batches, self._travel_s / max(self._busy_s, 1e-6)
        self.batches = 1 if share < (LEAST_SHARE if before == 2 else MOST_SHARE) else 2
        return self.batches != before


def _smooth(before: float, now: float) -> float:
    return now if not before else before + (now - before) * WEIGHT
