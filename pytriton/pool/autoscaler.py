"""Adds worker processes to a model when its requests wait, and removes them when they are idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from pytriton import forks
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.threads import keep_running

__all__ = ["Autoscaler", "Load", "Scalable"]

LOGGER = get_logger("pytriton.workers")

IDLE_SHARE = 0.7  # of the time of one worker less; below it, one worker can be removed


class Scalable(Protocol):
    """The methods of a ``Triton`` object that an autoscaler needs."""

    def statistics(self, model_name: str | None = None) -> Sequence[Any]:
        """The server's counters; a list of ModelStatistics."""

    def worker_status(self, model_name: str) -> Sequence[Any]:
        """The state of each worker; a list of WorkerStatus."""

    def scale(self, model_name: str, count: int) -> None:
        """Change the number of a model's workers."""


@dataclass(frozen=True)
class Load:
    """The load of a model, in total or in a period.

    Attributes:
        requests: That a worker received.
        queued_s: Sum of the seconds that they had waited in the server's queue.
        busy_s: Sum of the seconds that workers were busy.
    """

    requests: int = 0
    queued_s: float = 0.0
    busy_s: float = 0.0

    @classmethod
    def of(cls, statistics: Any) -> Load:
        """The load since the server loaded the model, from its ModelStatistics."""
        busy_s = sum(batch.compute_infer.total_s for batch in statistics.batches.values())
        return cls(statistics.queue.count, statistics.queue.total_s, busy_s)

    def since(self, before: Load) -> Load:
        """The load since an earlier total; or all of it, if the server has loaded the model again."""
        if self.requests < before.requests:
            return self
        return Load(
            self.requests - before.requests, self.queued_s - before.queued_s, max(0.0, self.busy_s - before.busy_s)
        )


class Autoscaler:
    """Scales a model between two numbers of workers, as a context manager or from :meth:`start` to :meth:`stop`.

    Adds a worker after each period in which requests waited longer than ``queue_s`` on average. Removes one after
    ``shrink_after`` periods in a row in which the others could have done its work; the last one, if there was no
    request. A request that comes then waits for it to start again.

    Args:
        triton: A ``Triton`` object that serves.
        model_name: Of a model that was bound with Processes.
        minimum: Least number of workers, which may be 0, and their number at the start, which is at least 1.
        maximum: Greatest number of workers.
        queue_s: Mean time in the server's queue above which a worker is added.
        period_s: Time between two decisions.
        shrink_after: Number of periods.

    Raises:
        PyTritonBadParameterError: A number is out of range.
    """

    def __init__(
        self,
        triton: Scalable,
        model_name: str,
        *,
        minimum: int = 1,
        maximum: int,
        queue_s: float = 0.05,
        period_s: float = 1.0,
        shrink_after: int = 10,
    ) -> None:
        if not 0 <= minimum <= max(1, minimum) <= maximum:
            raise PyTritonBadParameterError(
                f"minimum is {minimum} and maximum {maximum}; give 0 <= minimum <= maximum, and a maximum of at least 1"
            )
        if min(queue_s, period_s, shrink_after) <= 0:
            raise PyTritonBadParameterError("queue_s, period_s and shrink_after must be above 0")
        self.workers = max(1, minimum)
        self._triton = triton
        self._model = model_name
        self._limits = minimum, maximum
        self._queue_s, self._period_s, self._shrink_after = queue_s, period_s, shrink_after
        self._idle_periods = 0
        self._before = Load()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, there is no thread that waits for the event."""
        self._stopped = threading.Event()

    def __enter__(self) -> Autoscaler:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Scale to the minimum, but at least 1, and start; raises as :meth:`Triton.scale`."""
        self._triton.scale(self._model, self.workers)
        self._thread = keep_running(self._run, f"pytriton-autoscaler-{self._model}")

    def stop(self) -> None:
        """Stop scaling; the number of workers stays."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(self._period_s):
            now = time.monotonic()
            try:
                (statistics,) = self._triton.statistics(self._model)
            except PyTritonInvalidOperationError as error:  # stopped, or unbound
                LOGGER.info("model %s is no longer scaled: %s", self._model, error)
                return
            except Exception:  # the server is being restarted
                LOGGER.warning("model %s could not be scaled, trying again", self._model, exc_info=True)
                continue
            try:
                self.decide(Load.of(statistics), now - last)
            except PyTritonInvalidOperationError as error:  # stopped, unbound, or with sequences
                LOGGER.info("model %s was not scaled: %s", self._model, error)
            except Exception:  # the server is being restarted, or a worker could not be started
                LOGGER.warning("model %s could not be scaled, trying again", self._model, exc_info=True)
            last = now

    def decide(self, load: Load, period_s: float) -> None:
        """Scale the model if its load has changed enough.

        Args:
            load: Since the server loaded the model.
            period_s: Since the last decision.
        """
        recent, self._before = load.since(self._before), load
        minimum, maximum = self._limits
        mean_queue_s = recent.queued_s / recent.requests if recent.requests else 0.0
        if not self.workers:
            states = {each.state for each in self._triton.worker_status(self._model) if each.kind != "template"}
            if recent.requests or "ready" in states:  # a refused request starts a worker too, as does a rebind
                LOGGER.info("model %s: 1 worker instead of 0, because it has started", self._model)
                self.workers, self._idle_periods = 1, 0
            return
        is_idle = mean_queue_s <= self._queue_s and recent.busy_s < IDLE_SHARE * period_s * (self.workers - 1)
        if self.workers == 1:
            is_idle = not recent.requests and not recent.busy_s
        self._idle_periods = self._idle_periods + 1 if is_idle else 0
        if mean_queue_s > self._queue_s and self.workers < maximum:
            self._scale(self.workers + 1, f"requests wait for {mean_queue_s:.3f} s")
        elif self._idle_periods >= self._shrink_after and self.workers > minimum:
            self._scale(self.workers - 1, f"workers are busy for {recent.busy_s / period_s / self.workers:.0%}")

    def _scale(self, workers: int, why: str) -> None:
        LOGGER.info("model %s: %d workers instead of %d, because %s", self._model, workers, self.workers, why)
        self._idle_periods = 0
        self._triton.scale(self._model, workers)
        self.workers = workers
