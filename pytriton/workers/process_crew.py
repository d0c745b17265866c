"""Worker processes, one for each instance of a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.workers.crew import Infer, Member
from pytriton.workers.place import Place
from pytriton.workers.processes import Processes
from pytriton.workers.served_callable import Served
from pytriton.workers.supervisor import Supervisor
from pytriton.workers.task import Task

__all__ = ["ProcessCrew"]


class ProcessCrew:
    """Has a model's callables called in processes of their own.

    Args:
        processes: How they are made and kept.
        served: The model.
    """

    def __init__(self, processes: Processes, served: Served) -> None:
        self.members: list[Member] = []
        self._supervisors: list[Supervisor] = []
        self._processes = processes
        self._served = served

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """As :meth:`Crew.start`; the workers start at the same time.

        Raises:
            PyTritonWorkerError: One could not be started.
        """
        for index, place in enumerate(self._processes.places()):
            task = self._task(index, place, f"{sockets}.{index}")
            observation = self._served.observation
            self._supervisors.append(
                Supervisor(task, place, self._processes, observation, on_disconnect, on_unrecoverable)
            )
            self.members.append(self._supervisors[-1])
        deadline = time.monotonic() + self._processes.start_timeout_s
        for supervisor in self._supervisors:
            supervisor.wait_ready(deadline)
        kinds = {supervisor.is_async for supervisor in self._supervisors}
        if len(kinds) > 1:
            raise PyTritonWorkerError(
                f"the factory of model {self._served.config.model_name!r} made coroutine functions in some workers and "
                "plain ones in others"
            )
        return self._served.config.decoupled or True in kinds

    def _task(self, index: int, place: Place, path: str) -> Task:
        config = self._served.config
        version = f"-v{config.model_version}" if config.model_version != 1 else ""
        return Task(
            name=f"{config.model_name}{version}-{index}",
            factory=self._processes.factory,
            device=place.device_in_worker(),
            takes_device=self._processes.takes_device(),
            path=path,
            config=config,
            options=self._served.options,
            trace_config=self._served.trace_config,
            max_requests=self._processes.max_requests,
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
                f"model {self._served.config.model_name!r} has worker processes; rebind() takes "
                "pytriton.workers.Processes with another factory"
            )
        changed: list[Supervisor] = []
        try:
            for supervisor in self._supervisors:
                supervisor.rebind(infer.factory, infer.takes_device())
                changed.append(supervisor)
        except PyTritonWorkerError:
            for supervisor in changed:
                supervisor.rebind(self._processes.factory, self._processes.takes_device())
            raise
        self._processes = replace(self._processes, factory=infer.factory)

    def disconnect(self) -> None:
        """As :meth:`Crew.disconnect`; the processes are gone afterwards."""
        supervisors = list(self._supervisors)
        for supervisor in supervisors:
            supervisor.close()
        deadline = time.monotonic() + self._processes.stop_timeout_s
        for supervisor in supervisors:
            supervisor.join(deadline)

    def close(self) -> None:
        """As :meth:`Crew.close`."""
        self.disconnect()
        self._supervisors.clear()
        self.members.clear()
