"""How many requests a worker process has answered."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytriton.proxy.frames import Frame
from pytriton.worker.observation import Observation
from pytriton.worker.watch import Watch

__all__ = ["RequestCount"]


class RequestCount(Observation):
    """Counts the requests of the batches that it observes, if they are limited.

    Args:
        limit: None is none.
        on_reached: Called once, when the batch that reaches the limit has come.
    """

    def __init__(self, limit: int | None, on_reached: Callable[[], None]) -> None:
        super().__init__()
        self._limit = limit
        self._on_reached = on_reached
        self._count = 0
        self._counting = threading.Lock()

    def watches(self, model: str, version: int, frame: Frame) -> list[Watch]:
        """As :meth:`Observation.watches`."""
        if self._limit is not None:
            with self._counting:
                before, self._count = self._count, self._count + frame.requests
                reached = before < self._limit <= self._count
            if reached:
                self._on_reached()
        return super().watches(model, version, frame)
