"""A pool of worker processes, whose number can change while the model is served."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytriton.decorators.signatures import check_factory
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.pool.messages import WorkerSpec
from pytriton.pool.pool import Infer, ServedModel, WorkerStatus
from pytriton.pool.processes import FIRST, Processes, WorkerResources
from pytriton.pool.supervisor import Supervisor

__all__ = ["ProcessWorkerPool"]

LOGGER = logging.getLogger("pytriton.workers")


class ProcessWorkerPool:
    """Calls a model's callables in worker processes. Methods: see :class:`WorkerPool`.

    Attributes:
        processes: As given, with the present number of workers and the present factory.
        workers: Those that serve. Further ones may be starting.
    """

    def __init__(self, processes: Processes, model: ServedModel) -> None:
        check_factory(processes.factory)
        self.processes = processes
        self.workers: list[Supervisor] = []
        self._model = model
        self._supervisors: list[Supervisor] = []  # of all workers
        self._supervise: Callable[[int, WorkerResources], Supervisor] | None = None
        self._interrupted = False

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """As :meth:`WorkerPool.start`; all workers start at the same time.

        Raises:
            PyTritonWorkerError: A worker could not be started.
        """

        def supervise(index: int, resources: WorkerResources) -> Supervisor:
            spec = self._spec(index, resources, f"{sockets}.{index}")
            return Supervisor(spec, self.processes, self._model.observation, on_disconnect, on_unrecoverable)

        self._supervise = supervise
        self._start_missing()
        self._add_ready(1 if self.processes.wait_for == FIRST else len(self._supervisors))
        return self._model.config.decoupled or self._supervisors[0].is_async

    def _start_missing(self) -> None:
        """Start workers until there are as many as ``processes`` says; none before :meth:`start`."""
        if self._supervise is not None:
            for index, resources in [*enumerate(self.processes.resources())][len(self._supervisors) :]:
                self._supervisors.append(self._supervise(index, resources))
            if self._interrupted:
                self.interrupt()

    def _add_ready(self, count: int) -> None:
        """Wait for the first ``count`` workers, and add them to those that serve."""
        deadline = time.monotonic() + self.processes.start_timeout_s
        supervisors = self._supervisors[:count]
        for supervisor in supervisors:
            supervisor.wait_ready(deadline)
        if len({supervisor.is_async for supervisor in supervisors}) > 1:
            raise PyTritonWorkerError(
                f"the factory of model {self._model.config.model_name!r} made coroutine functions in some workers and "
                "plain ones in others"
            )
        self.workers[:] = self._supervisors[: max(count, len(self.workers))]

    def statuses(self) -> list[WorkerStatus]:
        """As :meth:`WorkerPool.statuses`."""
        return [supervisor.status() for supervisor in list(self._supervisors)]

    def restart(self) -> None:
        """Replace each worker's process by a new one when it has answered its batches, as ``max_requests`` does."""
        for supervisor in list(self._supervisors):
            supervisor.restart()

    def has_late_workers(self) -> bool:
        """Whether there are workers that do not serve yet."""
        return len(self.workers) < len(self._supervisors)

    def wait_for_late_workers(self) -> int:
        """Wait for all workers; returns how many are ready before the first that failed, 0 after :meth:`interrupt`."""
        deadline = time.monotonic() + self.processes.start_timeout_s
        ready = 0
        try:
            for supervisor in list(self._supervisors):
                supervisor.wait_ready(deadline)
                ready += 1
        except PyTritonWorkerError as error:
            if not self._interrupted:
                LOGGER.error("model %s has %d workers only: %s", self._model.config.model_name, ready, error)
        return 0 if self._interrupted else ready

    def scale_up(self, count: int) -> None:
        """Have at least ``count`` workers, all of them ready.

        Raises:
            PyTritonBadParameterError: ``count`` is not a positive integer.
            PyTritonWorkerError: A worker could not be started; the number of workers is unchanged.
        """
        before, workers = self.processes, len(self._supervisors)
        self.processes = replace(before, count=count)
        try:
            self._start_missing()
            self._add_ready(count)
        except BaseException:
            self.processes = before
            self._stop_from(workers)
            raise

    def scale_down(self, count: int) -> None:
        """Have at most ``count`` workers.

        The others end when the server has closed their proxies, which it does after their last requests, however long
        these take. After :meth:`interrupt` they end with all workers.
        """
        self.processes = replace(self.processes, count=count)
        if all(supervisor.wait_dismissed() for supervisor in self._supervisors[count:]):
            self._stop_from(count)

    def _stop_from(self, index: int) -> None:
        """Stop and forget the workers from an index on."""
        stopped = self._supervisors[index:]
        del self.workers[index:], self._supervisors[index:]
        for supervisor in stopped:
            supervisor.stop()
        for supervisor in stopped:
            supervisor.join()

    def _spec(self, index: int, resources: WorkerResources, path: str) -> WorkerSpec:
        config = self._model.config
        version = f"-v{config.model_version}" if config.model_version != 1 else ""
        return WorkerSpec(
            name=f"{config.model_name}{version}-{index}",
            factory=self.processes.factory,
            takes_device=self.processes.takes_device(),
            resources=resources,
            path=path,
            config=config,
            options=self._model.options,
            trace_config=self._model.trace_config,
            max_requests=self.processes.max_requests,
        )

    def rebind(self, infer: Infer) -> None:
        """As :meth:`WorkerPool.rebind`. The workers call the new factory, and serve meanwhile.

        Only the factory of ``infer`` is used.

        Raises:
            PyTritonWorkerError: A worker could not; all workers have their previous callables.
        """
        if not isinstance(infer, Processes):
            raise PyTritonValidationError(
                f"model {self._model.config.model_name!r} was bound with pytriton.workers.Processes; give Processes "
                "with another factory, or use bind(..., replace=True) to change that"
            )
        check_factory(infer.factory)
        changed: list[Supervisor] = []
        try:
            for supervisor in self._supervisors:
                supervisor.rebind(infer.factory, infer.takes_device())
                changed.append(supervisor)
        except PyTritonWorkerError:
            for supervisor in changed:
                supervisor.rebind(self.processes.factory, self.processes.takes_device())
            raise
        self.processes = replace(self.processes, factory=infer.factory)

    def interrupt(self) -> None:
        """As :meth:`WorkerPool.interrupt`; workers that serve continue."""
        self._interrupted = True
        for supervisor in list(self._supervisors):
            supervisor.interrupt()

    def stop(self) -> None:
        """As :meth:`WorkerPool.stop`."""
        for supervisor in list(self._supervisors):
            supervisor.stop()

    def join(self) -> None:
        """As :meth:`WorkerPool.join`."""
        for supervisor in list(self._supervisors):
            supervisor.join()

    def close(self) -> None:
        """As :meth:`WorkerPool.close`."""
        self.stop()
        self.join()
        self._supervisors.clear()
        self.workers.clear()
