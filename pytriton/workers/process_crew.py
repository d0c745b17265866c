"""Worker processes, one for each instance of a model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytriton.decorators.signatures import check_factory
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.workers.crew import Infer, Member
from pytriton.workers.place import Place
from pytriton.workers.processes import FIRST, Processes
from pytriton.workers.served_callable import Served
from pytriton.workers.supervisor import Supervisor
from pytriton.workers.task import Task

__all__ = ["ProcessCrew"]

LOGGER = logging.getLogger("pytriton.workers")


class ProcessCrew:
    """Has a model's callables called in processes of their own.

    Args:
        processes: How they are made and kept.
        served: The model.

    Attributes:
        processes: As given, with the number of workers and the factory that there are now.
    """

    def __init__(self, processes: Processes, served: Served) -> None:
        self.members: list[Member] = []
        self._supervisors: list[Supervisor] = []
        check_factory(processes.factory)
        self.processes = processes
        self._interrupted = False
        self._where: tuple[Path, Callable[[], None], Callable[[], None]] | None = None
        self._served = served

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """As :meth:`Crew.start`; the workers start at the same time.

        Raises:
            PyTritonWorkerError: One could not be started.
        """
        self._where = sockets, on_disconnect, on_unrecoverable
        self._hire()
        self._admit(1 if self.processes.wait_for == FIRST else len(self._supervisors))
        return self._served.config.decoupled or self._supervisors[0].is_async

    def _hire(self) -> None:
        """Start the workers that are missing."""
        if self._where is None:
            return
        sockets, on_disconnect, on_unrecoverable = self._where
        observation = self._served.observation
        for index, place in [*enumerate(self.processes.places())][len(self._supervisors) :]:
            task = self._task(index, place, f"{sockets}.{index}")
            self._supervisors.append(
                Supervisor(task, place, self.processes, observation, on_disconnect, on_unrecoverable)
            )
        if self._interrupted:
            self.interrupt()

    def _admit(self, count: int) -> None:
        """Have so many workers be members, when they are ready."""
        deadline = time.monotonic() + self.processes.start_timeout_s
        for supervisor in self._supervisors[:count]:
            supervisor.wait_ready(deadline)
        if len({supervisor.is_async for supervisor in self._supervisors[:count]}) > 1:
            raise PyTritonWorkerError(
                f"the factory of model {self._served.config.model_name!r} made coroutine functions in some workers and "
                "plain ones in others"
            )
        self.members[:] = self._supervisors[: max(count, len(self.members))]

    def has_late(self) -> bool:
        """Whether there are workers that are no members yet."""
        return len(self.members) < len(self._supervisors)

    def wait_late(self) -> int:
        """Wait for the workers that are no members yet.

        Returns:
            How many workers there can be, up to the first one that does not start; 0 if all is to end.
        """
        deadline = time.monotonic() + self.processes.start_timeout_s
        ready = 0
        try:
            for supervisor in list(self._supervisors):
                supervisor.wait_ready(deadline)
                ready += 1
        except PyTritonWorkerError as error:
            if not self._interrupted:
                LOGGER.error("model %s has %d workers only: %s", self._served.config.model_name, ready, error)
        return 0 if self._interrupted else ready

    def grow(self, count: int) -> None:
        """Have at least so many workers, all of them ready.

        Raises:
            PyTritonBadParameterError: ``count`` is not a positive integer.
            PyTritonWorkerError: One could not be started; there are as many as before.
        """
        before, workers = self.processes, len(self._supervisors)
        self.processes = replace(before, count=count)
        try:
            self._hire()
            self._admit(count)
        except BaseException:
            self.processes = before
            self._dismiss(workers)
            raise

    def shrink(self, count: int) -> None:
        """Have at most so many workers; the others end when they have answered their last requests, however long that
        takes, or with all workers after :meth:`interrupt`.
        """
        self.processes = replace(self.processes, count=count)
        if all(supervisor.wait_dismissed() for supervisor in self._supervisors[count:]):
            self._dismiss(count)

    def _dismiss(self, count: int) -> None:
        """End all workers but the first ones."""
        leaving = self._supervisors[count:]
        del self.members[count:], self._supervisors[count:]
        self._end(leaving)

    def _task(self, index: int, place: Place, path: str) -> Task:
        config = self._served.config
        version = f"-v{config.model_version}" if config.model_version != 1 else ""
        return Task(
            name=f"{config.model_name}{version}-{index}",
            factory=self.processes.factory,
            device=place.device_in_worker(),
            takes_device=self.processes.takes_device(),
            path=path,
            config=config,
            options=self._served.options,
            trace_config=self._served.trace_config,
            max_requests=self.processes.max_requests,
            cores=place.cores,
            levels={},
        )

    def rebind(self, infer: Infer) -> None:
        """As :meth:`Crew.rebind`; the new factory is called in the workers, which serve on meanwhile.

        All but the factory stays as it was bound.

        Raises:
            PyTritonWorkerError: A worker could not; all have the callables that they had.
        """
        if not isinstance(infer, Processes):
            raise PyTritonValidationError(
                f"model {self._served.config.model_name!r} was bound with pytriton.workers.Processes; give Processes "
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
        """As :meth:`Crew.interrupt`; workers that serve go on."""
        self._interrupted = True
        for supervisor in list(self._supervisors):
            supervisor.interrupt()

    def disconnect(self) -> None:
        """As :meth:`Crew.disconnect`; the processes are gone afterwards."""
        self._end(list(self._supervisors))

    def _end(self, supervisors: list[Supervisor]) -> None:
        for supervisor in supervisors:
            supervisor.close()
        deadline = time.monotonic() + self.processes.stop_timeout_s
        for supervisor in supervisors:
            supervisor.join(deadline)

    def close(self) -> None:
        """As :meth:`Crew.close`."""
        self.disconnect()
        self._supervisors.clear()
        self.members.clear()
