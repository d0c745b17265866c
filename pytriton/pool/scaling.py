"""How many worker processes a model has: some are added and leave while it is served, and end while it is idle."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonWorkerError
from pytriton.model_config import SequenceBatcher
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.local_worker_supervisor import LocalWorkerSupervisor
from pytriton.pool.resources import WorkerResources
from pytriton.threads import keep_running

__all__ = ["IdleWorkers", "ScaledWorkers"]

POLL_S = 0.02
SHORTEST_PAUSE_S = 0.01
SEQUENCE_MARGIN_S = 1.0  # the server ends a sequence a little later


class ScaledWorkers:
    """The workers of a model, whose number changes. Iteration is over a copy.

    Attributes:
        serving: Those that serve; always the same list. Further ones may be starting.
        supervise: Starts a worker, given its index and its share; None until workers may start.
        is_interrupted: Whether :meth:`interrupt` was called.
    """

    def __init__(self, model_name: str, start_timeout_s: float) -> None:
        self.serving: list[LocalWorkerSupervisor] = []
        self.supervise: Callable[[int, WorkerResources], LocalWorkerSupervisor] | None = None
        self.is_interrupted = False
        self._model_name, self._start_timeout_s = model_name, start_timeout_s
        self._supervisors: list[LocalWorkerSupervisor] = []

    def __iter__(self) -> Iterator[LocalWorkerSupervisor]:
        return iter([*self._supervisors])

    def start(self, resources: Sequence[WorkerResources]) -> None:
        """Start workers until each share has one, and wait until these are ready; none before ``supervise`` is set.

        Raises:
            PyTritonWorkerError: A worker could not be started, or makes another kind of callable than the others.
        """
        if self.supervise is not None:
            while len(self._supervisors) < len(resources):
                # Any worker may have left, so that its number is free.
                index = min({*range(len(resources))} - {each.index for each in self})
                self._supervisors.append(self.supervise(index, resources[index]))
            if self.is_interrupted:
                self.interrupt()
        deadline, count = time.monotonic() + self._start_timeout_s, len(resources)
        supervisors = self._supervisors[:count]
        for supervisor in supervisors:
            supervisor.wait_ready(deadline)
        if len({supervisor.is_async for supervisor in supervisors}) > 1:
            raise PyTritonWorkerError(
                f"the factory of model {self._model_name!r} made coroutine functions in some workers and plain ones in "
                "others"
            )
        self.serving[:] = self._supervisors[: max(count, len(self.serving))]

    def grow(self, resources: Sequence[WorkerResources]) -> None:
        """As :meth:`start`; if it fails, the workers are those that were there before."""
        before = len(self._supervisors)
        try:
            self.start(resources)
        except BaseException:
            self._stop_from(before)
            raise

    def shrink(self, count: int, any_may_leave: bool) -> None:
        """Have at most ``count`` workers.

        The others end when the server has closed their proxies, which it does after their last requests and sequences,
        however long these take. After :meth:`interrupt` they end with all workers. Unless any may leave, the last do.
        """
        if any_may_leave:
            self._order_by_stay(count)
        if all(supervisor.wait_dismissed() for supervisor in self._supervisors[count:]):
            self._stop_from(count)

    def _order_by_stay(self, count: int) -> None:
        """Wait until the server has let all but ``count`` workers go, has ended itself, or :meth:`interrupt`.

        Those that have left are the last ones then.
        """
        leaving = len(self._supervisors) - count
        while (
            sum(each.has_left() for each in self._supervisors) < leaving
            and any(each.is_connected() for each in self._supervisors)
            and not self.is_interrupted
        ):
            time.sleep(POLL_S)
        self._supervisors.sort(key=LocalWorkerSupervisor.has_left)
        self.serving[:] = self._supervisors[: len(self.serving)]

    def _stop_from(self, index: int) -> None:
        """Stop and forget the workers from an index on."""
        stopped = self._supervisors[index:]
        del self.serving[index:], self._supervisors[index:]
        for supervisor in stopped:
            supervisor.stop()
        for supervisor in stopped:
            supervisor.join()

    def idle_s(self, minimum: int = 0) -> float:
        """Seconds since the last batch of any worker but ``minimum``; infinite if all those are at zero."""
        return min([each.idle_s() for each in self._supervisors[minimum:]], default=math.inf)

    def end_idle(self, minimum: int) -> None:
        """End all but ``minimum`` workers when they have answered their batches, each until a batch comes for it."""
        for supervisor in self._supervisors[minimum:]:
            supervisor.end_idle()

    def interrupt(self) -> None:
        """Abort what waits for workers. Thread-safe."""
        self.is_interrupted = True
        for supervisor in self:
            supervisor.interrupt()

    def clear(self) -> None:
        """Forget the workers, which have ended."""
        self._supervisors.clear()
        self.serving.clear()


class IdleWorkers:
    """Ends workers of a model that has no requests.

    Attributes:
        replacing: Held while the callables of the workers are replaced; none ends meanwhile.
    """

    def __init__(self, workers: ScaledWorkers, config: TritonModelConfig) -> None:
        self.replacing = threading.Lock()
        self._workers, self._model_name = workers, config.model_name
        self._sequence_s = 0.0  # how long after its last request a sequence may be open
        if isinstance(config.batcher, SequenceBatcher):
            self._sequence_s = config.batcher.max_sequence_idle_microseconds / 1e6 + SEQUENCE_MARGIN_S
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def end_all(self, minimum: int = 0, waits: bool = True) -> None:
        """End all workers but ``minimum``.

        Args:
            waits: While the callables are replaced.

        Raises:
            PyTritonInvalidOperationError: They may have open sequences, or it would have to wait.
        """
        if not self.replacing.acquire(blocking=waits):
            raise PyTritonInvalidOperationError(f"the callables of model {self._model_name!r} are being replaced")
        try:
            self.check_sequences()
            self._workers.end_idle(minimum)
        finally:
            self.replacing.release()

    def check_sequences(self) -> None:
        """Check that all sequences have ended.

        Raises:
            PyTritonInvalidOperationError: Some may be open.
        """
        idle_s = self._workers.idle_s()
        if idle_s < self._sequence_s:
            raise PyTritonInvalidOperationError(
                f"model {self._model_name!r} may have open sequences, because its last request came {idle_s:.1f} s "
                f"ago; end its workers {self._sequence_s:g} s after the last request, or later"
            )

    def watch(self, thread: str, idle_s: float, minimum: int) -> None:
        """End all but ``minimum`` workers each time that the model has been idle for so long, until :meth:`stop`.

        Args:
            thread: Name of the thread that does so.
            idle_s: At least as long as a sequence may be open.
        """
        limit_s = max(idle_s, self._sequence_s)
        self._thread = keep_running(lambda: self._watch(limit_s, minimum), thread)

    def _watch(self, limit_s: float, minimum: int) -> None:
        pause_s = limit_s
        while not self._stopped.wait(pause_s):
            idle_s = self._workers.idle_s()
            if limit_s <= idle_s < math.inf and self.replacing.acquire(blocking=False):
                try:
                    self._workers.end_idle(minimum)
                finally:
                    self.replacing.release()
            pause_s = max(SHORTEST_PAUSE_S, limit_s - idle_s if idle_s < limit_s else limit_s)

    def stop(self) -> None:
        """End no more. Does not wait for that. Thread-safe."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the end of the thread after :meth:`stop`."""
        if self._thread is not None:
            self._thread.join()
