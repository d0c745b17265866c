"""What a worker process observes of its batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.observation import Observation
from pytriton.workers.batch_reports import BatchReport

__all__ = ["WorkerObservation"]


class WorkerObservation(Observation):
    """Counts the requests of a worker, if they are limited, and tells of its batches, if metrics are wanted.

    Args:
        limit: None is none.
        on_reached: Called once, when the batch that reaches the limit has come.
        tell: Tells the launching process of batches.

    Attributes:
        is_wanted: Whether to tell.
    """

    def __init__(
        self, limit: int | None, on_reached: Callable[[], None], tell: Callable[[tuple[Any, ...]], None]
    ) -> None:
        super().__init__()
        self._limit = limit
        self._on_reached = on_reached
        self._count = 0
        self._tell = tell
        self._numbers = count()
        self.is_wanted = False
        self._counting = threading.Lock()

    def is_idle(self) -> bool:
        """As :meth:`Observation.is_idle`."""
        return self._limit is None and not self.is_wanted and super().is_idle()

    def observers(self, model: str, version: int, frame: Frame) -> list[BatchObserver]:
        """As :meth:`Observation.observers`."""
        if self._limit is not None:
            with self._counting:
                before, self._count = self._count, self._count + frame.requests
                reached = before < self._limit <= self._count
            if reached:
                self._on_reached()
        observers = super().observers(model, version, frame)
        if self.is_wanted:
            observers.append(BatchReport(self._tell, next(self._numbers), frame))
        return observers
