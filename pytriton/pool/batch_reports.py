"""Metrics and records of batches that worker processes answer: the worker reports, the launching process keeps them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from pytriton.introspection import override
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.metrics import BatchMetrics
from pytriton.worker.observation import Observation, key_of
from pytriton.worker.recording import NumberedRecording, Recorder

__all__ = ["BatchCounter", "BatchReporter", "WorkerObservation"]

MOST_PART_BYTES = 2**18
ARRIVED, RESUMED, FAILED, ENDED = "arrived", "resumed", "failed", "ended"


class WorkerObservation(Observation):
    """In a worker process: counts requests up to ``max_requests``, and reports batches if that is wanted.

    Args:
        on_max_requests: Called once, when the batch that reaches the limit has arrived.
        report: Sends a batch's number, what has happened to it, and details.

    Attributes:
        reports_batches: Whether the launching process counts batches.
    """

    def __init__(
        self, max_requests: int | None, on_max_requests: Callable[[], None], report: Callable[..., None]
    ) -> None:
        super().__init__()
        self.reports_batches = False
        self._max_requests = max_requests
        self._on_max_requests = on_max_requests
        self._report = report
        self._numbers = count()
        self._requests = 0
        self._counting = threading.Lock()

    @override
    def is_idle(self) -> bool:
        return self._max_requests is None and not self.reports_batches and super().is_idle()

    def record(
        self,
        config: TritonModelConfig,
        numbered: NumberedRecording | None,
        send: Callable[[int, list[bytes], int, int], None],
    ) -> None:
        """Record requests as the launching process says; None ends that. Returns when earlier records were sent.

        Args:
            send: Sends the recording's number, records, and how many requests were dropped and too large.
        """
        before = self._recorders.pop(key_of(config), None)
        if before is not None:
            before.close()
        if numbered is not None:
            write = partial(_send_in_parts, partial(send, numbered.number))
            self._recorders[key_of(config)] = Recorder(config, numbered, write)

    @override
    def observers(self, model: str, version: int, frame: Frame) -> list[BatchObserver]:
        if self._max_requests is not None:
            with self._counting:
                before, self._requests = self._requests, self._requests + frame.requests
            if before < self._max_requests <= before + frame.requests:
                self._on_max_requests()
        observers = super().observers(model, version, frame)
        if self.reports_batches:
            observers.append(BatchReporter(self._report, next(self._numbers), frame))
        return observers


def _send_in_parts(
    send: Callable[[list[bytes], int, int], None], records: list[bytes], dropped: int, too_large: int
) -> None:
    """Send records so that other messages need not wait long behind them."""
    begin = size = 0
    for index, record in enumerate(records):
        size += len(record)
        if size >= MOST_PART_BYTES:
            send(records[begin : index + 1], 0, 0)
            begin, size = index + 1, 0
    send(records[begin:], dropped, too_large)


class BatchReporter(BatchObserver):
    """In a worker process: reports one batch, with :func:`time.perf_counter` seconds, which all processes share."""

    def __init__(self, report: Callable[..., None], number: int, frame: Frame) -> None:
        self._report = report
        self._number = number
        self._has_resumed = False
        report(number, ARRIVED, frame.requests, None if frame.rows is None else sum(frame.rows))

    def resume(self) -> None:
        """Only the first call of the callable counts."""
        if not self._has_resumed:
            self._has_resumed = True
            self._report(self._number, RESUMED, time.perf_counter())

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Reports the error's class; the error itself may not be picklable."""
        if not again:
            self._report(self._number, FAILED, type(error).__name__, request)

    @override
    def end(self, cancelled: bool = False) -> None:
        self._report(self._number, ENDED, cancelled, time.perf_counter())


class BatchCounter:
    """In the launching process: counts the batches of one worker after the other. For one thread."""

    def __init__(self, observation: Observation, config: TritonModelConfig) -> None:
        self._observation = observation
        self._config = config
        self._pending: dict[int, BatchMetrics] = {}

    def count(self, number: int, what: str, *details: Any) -> None:
        """Count a report of the worker."""
        metrics = self._observation.metrics
        if what == ARRIVED and metrics is not None:
            self._pending[number] = metrics.batch(self._config.model_name, self._config.model_version, *details)
        elif number in self._pending:
            batch = self._pending[number]
            if what == RESUMED:
                batch.resume(*details)
            elif what == FAILED:
                batch.failed_as(*details)
            elif what == ENDED:
                del self._pending[number]
                batch.end(*details)

    def cancel_all(self) -> None:
        """The worker has died: its pending batches have failed."""
        for batch in self._pending.values():
            batch.failed_as("WorkerDied", None)
            batch.end(cancelled=True)
        self._pending.clear()
