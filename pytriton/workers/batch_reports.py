"""What the metrics of callables need to know of the batches of worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.metrics import BatchMetrics
from pytriton.worker.observation import Observation

__all__ = ["BatchCounter", "BatchReport"]

ARRIVED, RESUMED, FAILED, ENDED = "arrived", "resumed", "failed", "ended"


class BatchReport(BatchObserver):
    """Tells the launching process of one batch.

    Moments are those of :func:`time.perf_counter`, which is the same clock in all processes of a machine.

    Args:
        tell: Sends a number, what has happened, and its details.
        number: Of the batch in this worker.
        frame: The batch.
    """

    def __init__(self, tell: Callable[[tuple[Any, ...]], None], number: int, frame: Frame) -> None:
        self._tell = tell
        self._number = number
        self._begun = False
        tell((number, ARRIVED, frame.requests, None if frame.rows is None else sum(frame.rows)))

    def resume(self) -> None:
        """The callable runs; only the first time counts."""
        if not self._begun:
            self._begun = True
            self._tell((self._number, RESUMED, time.perf_counter()))

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """A request has failed, or all; the error itself may not travel."""
        if not again:
            self._tell((self._number, FAILED, type(error).__name__, request))

    def end(self, cancelled: bool = False) -> None:
        """No reply follows."""
        self._tell((self._number, ENDED, cancelled, time.perf_counter()))


class BatchCounter:
    """Counts the batches of which one worker after the other tells. For one thread.

    Args:
        observation: Has the metrics, once they are wanted.
        config: Of the model.
    """

    def __init__(self, observation: Observation, config: TritonModelConfig) -> None:
        self._observation = observation
        self._config = config
        self._open: dict[int, BatchMetrics] = {}

    def take(self, number: int, what: str, *details: Any) -> None:
        """Count what a worker told."""
        metrics = self._observation.metrics
        if what == ARRIVED and metrics is not None:
            self._open[number] = metrics.batch(self._config.model_name, self._config.model_version, *details)
        elif number in self._open:
            batch = self._open[number]
            if what == RESUMED:
                batch.resume(*details)
            elif what == FAILED:
                batch.failed_as(*details)
            elif what == ENDED:
                del self._open[number]
                batch.end(*details)

    def lose(self) -> None:
        """The worker has ended, and its batches with it."""
        for batch in self._open.values():
            batch.failed_as("WorkerDied", None)
            batch.end(cancelled=True)
        self._open.clear()
