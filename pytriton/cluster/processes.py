"""The worker processes of a model on one host whose server is elsewhere: forked by a template, or started alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pytriton.cluster.worker import RemoteWorker, WorkerOptions, fitting
from pytriton.exceptions import PyTritonError, PyTritonWorkerError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.pool.messages import ProcessSpec
from pytriton.pool.pipes import MessagePipe
from pytriton.pool.process import ChildProcess
from pytriton.pool.processes import Processes
from pytriton.pool.template import Template
from pytriton.pool.worker_supervisor import Templates, WorkerSupervisor
from pytriton.threads import keep_running
from pytriton.wire.control import READY, REFUSED, WELCOME
from pytriton.worker.results import is_async

__all__ = ["RemoteProcesses"]

LOGGER = get_logger("pytriton.workers")


@dataclass(frozen=True, kw_only=True)
class RemoteWorkerSpec(ProcessSpec):
    """The data that a worker process needs to start whose server is elsewhere; as :class:`RemoteWorker` has them.

    Attributes:
        welcome: What the server's side said of the model when its predecessor joined: a callable that was loaded again
            and does not fit is found before it takes the place of the one that does.
    """

    model: str
    version: int | None
    options: WorkerOptions
    welcome: dict[str, Any] | None = None

    @override
    def start(self, pipe: MessagePipe, descriptors: Sequence[int]) -> Callable[[], None]:
        function = self.inference_callable()
        if self.welcome is not None:
            fitting(function, self.welcome)
        on_join = partial(pipe.send, WELCOME)
        worker = RemoteWorker(self.model, function, self.options, self.version, self.resources.device, on_join)
        pipe.send(READY, is_async(function))
        return partial(_serve, worker, pipe)


def _serve(worker: RemoteWorker, pipe: MessagePipe) -> None:
    """Answer batches until the launching process closes the pipe, or the server's side refuses the worker for good."""

    def leave_at_end() -> None:
        while pipe.receive() is not None:
            pass
        worker.leave()

    keep_running(leave_at_end, "pytriton-leave")
    try:
        worker.run()
    except PyTritonError as error:
        pipe.send(REFUSED, str(error))


class RemoteSupervisor(WorkerSupervisor[RemoteWorkerSpec]):
    """Runs a worker whose server is elsewhere, until that refuses it for good.

    Args:
        on_end: Called after the last process.
    """

    def __init__(
        self, spec: RemoteWorkerSpec, processes: Processes, template: Template | None, on_end: Callable[[], None]
    ) -> None:
        super().__init__(spec, processes.restarts(), template, **processes.limits())
        self._refusal, self._on_end = "", on_end
        self._begin()

    @override
    def _start(self) -> ChildProcess:
        return self._launch(self._spec)

    @override
    def _handle(self, process: ChildProcess, report: bytes, *details: Any) -> None:
        if report == REFUSED:
            (self._refusal,) = details
        elif report == WELCOME:
            (welcome,) = details
            self._spec = replace(self._spec, welcome=welcome)

    @override
    def _wait_before_restart(self, how: str) -> bool:
        if self._refusal:
            self._give_up(self._refusal)
        return not self._refusal and super()._wait_before_restart(how)

    @override
    def _release(self) -> None:
        self._on_end()


class RemoteProcesses:
    """Answers the batches of one model with worker processes on this host, until :meth:`leave`.

    Args:
        processes: How many there are, what they serve, and whether they share memory.
        options: Where each joins.
        version: Of the model; None is any.
    """

    def __init__(self, model: str, processes: Processes, options: WorkerOptions, version: int | None = None) -> None:
        self._model, self._processes, self._options, self._version = model, processes, options, version
        self._templates = Templates(
            lambda spec: Template(model, spec, processes.restarts(), **processes.limits()), processes.start_timeout_s
        )
        self._workers: list[RemoteSupervisor] = []
        self._ending = threading.Event()
        self._reloading = threading.Lock()

    def _specs(self) -> list[RemoteWorkerSpec]:
        return [
            RemoteWorkerSpec(
                name=f"{self._model}-{index}",
                factory=self._processes.factory,
                takes_device=self._processes.takes_device(),
                resources=resources,
                index=index,
                model=self._model,
                version=self._version,
                options=self._options,
            )
            for index, resources in enumerate(self._processes.resources())
        ]

    def start(self) -> None:
        """Start the processes, and wait until their callables are made.

        Raises:
            PyTritonWorkerError: The factory failed, or workers cannot be forked from its process; all have ended.
        """
        specs = self._specs()
        try:
            if self._processes.share:
                self._templates.start(specs[0])
            deadline = time.monotonic() + self._processes.start_timeout_s
            for spec in specs:
                template = self._templates.newest
                self._workers.append(RemoteSupervisor(spec, self._processes, template, self._ending.set))
            for worker in self._workers:
                worker.wait_ready(deadline)
        except BaseException:
            self._end()
            raise

    def run(self) -> None:
        """Wait for :meth:`leave`, or until the server's side refuses a worker for good, and for the processes' ends.

        Raises:
            PyTritonWorkerError: It refused one, or its callable does not fit the model.
        """
        self._ending.wait()
        self._end()
        for status in [worker.status() for worker in self._workers]:
            if status.state == "failed":
                raise PyTritonWorkerError(status.last_error)

    def _end(self) -> None:
        self._templates.interrupt()
        family = [*self._templates, *self._workers]
        for each in family:
            each.stop()
        for each in reversed(family):  # a template ends after its workers
            each.join()

    def leave(self) -> None:
        """Take no further batch, answer those that have come, and end. From any thread."""
        self._ending.set()

    def reload(self) -> None:
        """Call the factory again, in a new template, which forks one worker after the other again.

        The others serve meanwhile. If it fails, all stays as it was, and the log has the reason.
        """
        with self._reloading:
            if self._ending.is_set():
                return
            try:
                self._templates.replace(self._specs()[0], self._workers)
                LOGGER.info("model %s is loaded again", self._model)
            except PyTritonWorkerError as error:
                if not self._ending.is_set():
                    LOGGER.error("model %s could not be loaded again, and goes on as it was: %s", self._model, error)
