"""Keeps one worker running, in processes of its own or in those that a template forks; and that template."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from pytriton.exceptions import PyTritonWorkerError
from pytriton.introspection import override
from pytriton.pool.messages import ProcessSpec, pickled
from pytriton.pool.pipes import log_levels
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.process import ChildProcess, Launch, Program
from pytriton.pool.process_supervisor import ProcessSupervisor
from pytriton.pool.template import Template
from pytriton.restarts import RestartPolicy

__all__ = ["Templates", "WorkerSupervisor"]

PROGRAM = "pytriton.pool.worker_main"

SpecT = TypeVar("SpecT", bound=ProcessSpec)


class WorkerSupervisor(ProcessSupervisor, Generic[SpecT]):
    """Runs a worker in one process after the other.

    Args:
        template: Forks the processes; None: each calls the factory itself.
        options: The last arguments of :class:`ProcessSupervisor`.
    """

    def __init__(self, spec: SpecT, restarts: RestartPolicy, template: Template | None, **options: Any) -> None:
        super().__init__(spec.name, f"worker {spec.name}", "process", restarts, **options)
        self._spec = spec
        self._template = self._forked_from = template  # of the next process, and of the last one
        self._died_from: Template | None = None  # of the last process that has died

    @property
    def index(self) -> int:
        """Of the worker among those of its model on this host, from 0."""
        return self._spec.index

    @override
    def status(self) -> WorkerStatus:
        return replace(super().status(), device=self._spec.resources.device or "")

    def restart(self) -> None:
        """Replace the process by a new one when it has answered its batches. Does not wait for that. Thread-safe."""
        with self._changed:
            process = self._process
            if process is None or self._ready_since is None or self._is_leaving:
                return
            self._is_leaving = True
        self._drain(process)

    def _drain(self, process: ChildProcess) -> None:
        """Have a process end when it has answered its batches."""
        process.stop()

    def fork_from(self, template: Template, wait: bool = True) -> None:
        """Replace the process, when it has answered its batches, by one that another template forks.

        Args:
            template: Forks the processes that follow.
            wait: Until the new process is ready. Otherwise one that starts from another template is killed.

        Raises:
            PyTritonWorkerError: The new process could not be started, or was not ready in time.
        """
        deadline = time.monotonic() + self._start_timeout_s
        before, self._template, self._died_from = self._template, template, None
        if before is not None:
            before.wake()  # the next process may wait for it
        if wait:
            self.want()
        else:
            self._kill_starting()

        def is_settled() -> bool:
            return self._ready_since is not None and not self._is_leaving

        def has_failed() -> bool:
            return self._died_from is template

        while self._wait_for(lambda: is_settled() or has_failed(), deadline if wait else 0.0) and not has_failed():
            if self._forked_from is template:
                return
            self.restart()
        if wait and self.is_alive():
            reason = self._last_exit if has_failed() else "it took too long"
            raise PyTritonWorkerError(f"{self._title} could not be forked again: {reason}")

    def _kill_starting(self) -> None:
        """Replace a process that is not ready, and may never be."""
        with self._changed:
            process = self._process
            if process is None or self._ready_since is not None or self._forked_from is self._template:
                return
            self._is_leaving = True
        process.kill()

    @override
    def _note_ready(self, is_async: bool, callees: frozenset[str] = frozenset()) -> None:
        super()._note_ready(is_async, callees)
        if self._forked_from is not self._template:  # which has changed while it started
            self.restart()

    @override
    def stop(self) -> None:
        super().stop()
        if self._template is not None:
            self._template.wake()

    @override
    def start_s(self) -> float:
        return super().start_s() + (0.0 if self._template is None else self._template.start_s())

    def _launch(self, spec: SpecT, descriptors: Sequence[int] = ()) -> ChildProcess:
        """Start a process, which inherits descriptors. Raises as :meth:`_start`."""
        template = self._forked_from = self._template
        if template is None or not template.start_s():  # else the template itself waits
            self._wait_for_room()
        spec = replace(spec, log_levels=log_levels())
        launch: Launch = Program(PROGRAM, spec.resources.environment())
        if template is not None:
            launch = partial(
                template.fork, is_cancelled=lambda: self._stopped.is_set() or self._template is not template
            )
            spec = replace(spec, factory=object, takes_device=False)  # the template has called it
        return ChildProcess(self._name, launch, pickled(spec), descriptors, self._changed)

    @override
    def _note_exit(self, how: str) -> None:
        self._died_from = self._forked_from
        super()._note_exit(how)


class Templates:
    """The templates of one model: none, one, or two during a rebind. The last one forks. Iteration is over a copy.

    Args:
        make: Makes a template.
        start_timeout_s: Longest time until it is ready.
    """

    def __init__(self, make: Callable[[ProcessSpec], Template], start_timeout_s: float) -> None:
        self._make, self._start_timeout_s = make, start_timeout_s
        self._templates: list[Template] = []
        self._is_interrupted = False

    def __iter__(self) -> Iterator[Template]:
        return iter([*self._templates])

    @property
    def newest(self) -> Template | None:
        """The one that forks; None if workers do not share memory."""
        return self._templates[-1] if self._templates else None

    def start(self, spec: ProcessSpec) -> Template:
        """Start a template, from which workers are forked from now on, and wait until it is ready.

        Args:
            spec: Of a worker; what differs between workers is ignored.

        Raises:
            PyTritonWorkerError: The factory failed, or workers cannot be forked from its process; the template stays.
        """
        template = self._make(replace(spec, resources=replace(spec.resources, device=None)))
        self._templates.append(template)
        if self._is_interrupted:
            template.interrupt()
        template.wait_ready(time.monotonic() + self._start_timeout_s)
        return template

    def replace(self, spec: ProcessSpec, workers: Iterable[WorkerSupervisor[Any]]) -> None:
        """Make another template, and have it fork one worker after the other again, while the others serve.

        Raises:
            PyTritonWorkerError: As :meth:`start`, or a worker cannot be started; the old template forks again.
        """
        before, supervisors = self._templates[-1], [*workers]
        try:
            template = self.start(spec)
            if template.is_async != before.is_async:
                raise PyTritonWorkerError(
                    "a coroutine function cannot take the place of a plain one, nor the other way round"
                )
            for supervisor in supervisors:
                supervisor.fork_from(template)
        except BaseException:  # Ctrl+C, too
            for supervisor in supervisors:
                supervisor.fork_from(before, wait=False)
            if self._templates[-1] is not before:
                self._end(self._templates[-1])
            raise
        self._end(before)

    def _end(self, template: Template) -> None:
        template.stop()
        template.join()
        self._templates.remove(template)

    def interrupt(self) -> None:
        """Abort what waits for a template. Thread-safe."""
        self._is_interrupted = True
        for template in self:
            template.interrupt()

    def clear(self) -> None:
        """Forget the templates, which have ended."""
        self._templates.clear()
