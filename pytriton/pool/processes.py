"""``Processes``, which ``bind`` takes in place of callables, and its pool."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, cast

from pytriton.composition.connector import Connector
from pytriton.decorators.signatures import check_factory
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError, PyTritonWorkerError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config import ModelConfig
from pytriton.options import FLAG, SECONDS, check, integer, option, with_none
from pytriton.pool.inspection import Inspection
from pytriton.pool.local_worker_supervisor import LocalWorkerSupervisor
from pytriton.pool.messages import pickled
from pytriton.pool.pipes import log_levels
from pytriton.pool.pool import Infer, ScalablePool, ServedModel, WorkerPool, Workers, WorkerStatus
from pytriton.pool.process import ChildProcess, Program
from pytriton.pool.process_supervisor import ProcessSupervisor
from pytriton.pool.resources import WorkerResources, all_gpus, check_shared, takes_device
from pytriton.pool.scaling import IdleWorkers, ScaledWorkers
from pytriton.pool.template import Template
from pytriton.pool.worker_main import WorkerSpec
from pytriton.pool.worker_supervisor import PROGRAM, Templates
from pytriton.restarts import RestartPolicy
from pytriton.signature.derive import Derived
from pytriton.signature.examples import Example
from pytriton.wire.control import DERIVED, REFUSED

__all__ = ["ProcessWorkerPool", "Processes"]

LOGGER = get_logger("pytriton.workers")

AUTO = "auto"
MAX_WORKERS, MAX_INSTANCES = 1024, 64
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 10.0


@dataclass(frozen=True)
class Processes(Workers):
    """Worker processes for a model: one per instance, each with its own interpreter.

    Each worker calls ``factory``, which returns the inference callable, decorated as usual. The factory is sent with
    cloudpickle, so it may be a lambda, a closure, or a function of ``__main__`` or of a notebook. What it refers to is
    copied; load large objects in the factory itself. A parameter ``device`` receives the worker's device. If the
    callable has a method ``close``, the worker calls it at its end.

    Args:
        factory: Makes the inference callable.
        count: Number of workers; ``"auto"`` is one per device or, without devices, one per core that this process may
            use.
        devices: One per worker, in turn if there are fewer. With ``"cuda:1"`` the worker sees this GPU alone, through
            ``CUDA_VISIBLE_DEVICES``, so that ``device`` is ``"cuda:0"`` there; other names are passed on unchanged.
            ``"auto"`` is every GPU of the machine. None is no device.
        instances_per_worker: How many threads of a worker call the callable at once. Each is a model instance of the
            server. For plain functions that release the interpreter lock, and may be called by several threads.
        threads: Value of ``OMP_NUM_THREADS`` and similar variables in a worker, unless this process has them in its
            environment; ``"auto"`` divides the cores among all instances; None sets nothing.
        share: Whether workers share the memory of what ``factory`` loads: a process of its own, the template, calls it,
            and forks the workers, which start within milliseconds. Before a worker serves, it calls the callable's
            method ``after_fork(worker)``, if there is one, with a :class:`pytriton.workers.ForkedWorker`.
        minimum: Number of workers that stay when the model is idle. The others end, and each starts again when the
            server has a batch for it, which waits. None: all stay.
        idle_s: How long there must have been no request until workers end. A model with a ``SequenceBatcher`` is not
            idle before all sequences have ended, by ``max_sequence_idle_microseconds``.
        keep_template: Whether the template stays when all workers have ended. If not, the factory is called again.
        max_requests: A worker that has answered this many is replaced, between two batches; None is never.
        max_restarts: If a worker dies more often within a minute, the model counts as dead. None: it is started again
            for ever, after 10 s at most.
        start_timeout_s: Longest time until the factory has returned and the model is warmed up.
        stop_timeout_s: Longest time for a worker to end before it is killed.

    Raises:
        PyTritonValidationError: ``factory`` cannot be called, or takes a device, although it is called once for all
            workers; ``devices`` are not names; ``keep_template`` says something of workers without a template.
        PyTritonBadParameterError: A number is out of range.
    """

    factory: Callable[..., Any]
    _: KW_ONLY
    count: int | str = option(AUTO, integer(1, MAX_WORKERS, AUTO))
    devices: Sequence[str] | str | None = None
    instances_per_worker: int = option(1, integer(1, MAX_INSTANCES))
    threads: int | str | None = option(AUTO, with_none(integer(1, None, AUTO)))
    share: bool = option(False, FLAG)
    minimum: int | None = option(None, with_none(integer(0)))
    idle_s: float = option(300.0, SECONDS)
    keep_template: bool = option(True, FLAG)
    max_requests: int | None = option(None, with_none(integer()))
    max_restarts: int | None = option(None, with_none(integer(0)))
    start_timeout_s: float = option(300.0, SECONDS)
    stop_timeout_s: float = option(10.0, SECONDS)

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise PyTritonValidationError(f"factory is {self.factory!r}; give what returns the inference callable")
        if self.devices not in (None, AUTO) and not _are_names(self.devices):
            raise PyTritonValidationError(
                f'devices are {self.devices!r}; give a list such as ["cuda:0", "cuda:1"], or "auto"'
            )
        check(self)
        if self.share:
            check_shared(self.factory)
        if not self.keep_template and not self.share:
            raise PyTritonValidationError(
                "keep_template is False, but without share=True there is no template; leave keep_template out"
            )

    def resources(self, cores: int | None = None) -> list[WorkerResources]:
        """The share of each worker; their number is the number of workers.

        Args:
            cores: How many there are to divide; default: those that this process may use.

        Raises:
            PyTritonBadParameterError: ``devices`` is ``"auto"``, and there is no GPU.
        """
        cores = len(os.sched_getaffinity(0)) if cores is None else cores
        devices = all_gpus() if self.devices == AUTO else list(self.devices or ())
        if self.devices == AUTO and not devices:
            raise PyTritonBadParameterError('devices is "auto", but there is no GPU here; leave devices out')
        count = self.count if isinstance(self.count, int) else len(devices) or cores
        threads = max(1, cores // (count * self.instances_per_worker)) if self.threads == AUTO else self.threads
        return [
            WorkerResources(
                device=devices[index % len(devices)] if devices else None,
                threads=threads if isinstance(threads, int) else None,
            )
            for index in range(count)
        ]

    def takes_device(self) -> bool:
        """Whether the factory has a parameter ``device``."""
        return takes_device(self.factory)

    def restarts(self) -> RestartPolicy:
        """When a process that has died is started again."""
        return RestartPolicy(self.max_restarts, FIRST_BACKOFF_S, MAX_BACKOFF_S)

    def limits(self) -> dict[str, float]:
        """The longest start and end of a process, as supervisors take them."""
        return {"start_timeout_s": self.start_timeout_s, "stop_timeout_s": self.stop_timeout_s}

    @override
    def instance_count(self) -> int:
        return len(self.resources()) * self.instances_per_worker

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        check_factory(self.factory)
        resources = self.resources()[0]
        spec = Inspection(
            name="inspection",
            factory=self.factory,
            takes_device=self.takes_device(),
            resources=resources,
            log_levels=log_levels(),
            config=config,
            examples=examples,
        )
        failure = ""
        process = ChildProcess(spec.name, Program(PROGRAM, resources.environment()), pickled(spec))
        for report, value in process.reports(self.start_timeout_s):
            if report == DERIVED:
                process.wait()
                return cast(Derived, pickle.loads(value))
            if report == REFUSED:
                process.wait()
                raise PyTritonValidationError(value)
            failure = value
        ended = process.wait()
        raise PyTritonWorkerError(
            f"inputs and outputs cannot be derived: {failure or f'the worker ended with {ended}'}"
        )

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        return ProcessWorkerPool(self, model)


def _are_names(given: object) -> bool:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return bool(given) and all(isinstance(name, str) for name in given)


class ProcessWorkerPool(ScalablePool):
    """Calls a model's callables in worker processes.

    Attributes:
        processes: As given, with the present number of workers and the present factory.
    """

    def __init__(self, processes: Processes, model: ServedModel) -> None:
        super().__init__(model)
        check_factory(processes.factory)
        if processes.instances_per_worker > 1 and model.config.decoupled:
            raise PyTritonValidationError(
                f"model {model.config.model_name!r} is decoupled, and its worker answers several requests at once "
                "already, in turn; leave instances_per_worker out, and give a count of workers"
            )
        self.processes = processes
        self._all_workers = ScaledWorkers(model.config.model_name, processes.start_timeout_s)
        self._idle_workers = IdleWorkers(self._all_workers, model.config)
        self.workers: list[LocalWorkerSupervisor] = self._all_workers.serving
        self._options: dict[str, Any] = {**processes.limits(), "budget": model.context.memory_budget}  # of supervisors
        self._templates = Templates(
            lambda spec: Template(self._title(), spec, processes.restarts(), **self._options),
            processes.start_timeout_s,
        )

    @override
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        processes = self.processes

        def supervise(index: int, resources: WorkerResources) -> LocalWorkerSupervisor:
            return LocalWorkerSupervisor(
                self._spec(index, resources, f"{sockets}.{index * processes.instances_per_worker}"),
                processes.restarts(),
                self.model.observation,
                on_disconnect,
                on_unrecoverable,
                self._end_templates,
                self._templates.newest,
                **self._options,
            )

        if processes.share:
            self._templates.start(self._template_spec(processes.factory))
        self._all_workers.supervise = supervise
        self._all_workers.start(processes.resources())
        if processes.minimum is not None:
            self._idle_workers.watch(f"pytriton-{self._title()}-idle", processes.idle_s, processes.minimum)
        self.callees = self.workers[0].callees
        return self.model.config.decoupled or self.workers[0].is_async

    def _end_templates(self) -> None:
        """End the template, unless it is to stay, or is needed."""
        if not self.processes.keep_template and all(each.is_at_zero() for each in self._all_workers):
            for template in self._templates:
                template.end_idle()

    @property
    @override
    def instances_per_worker(self) -> int:
        return self.processes.instances_per_worker

    @override
    def statuses(self) -> list[WorkerStatus]:
        return [each.status() for each in self._processes()]

    def _processes(self) -> list[ProcessSupervisor]:
        """Of all workers and templates; a copy."""
        return [*self._templates, *self._all_workers]

    @override
    def restart(self) -> None:
        for supervisor in self._all_workers:
            supervisor.restart()

    @override
    def idle_s(self) -> float:
        return self._all_workers.idle_s(self._minimum())

    @override
    def end_idle(self) -> None:
        self._idle_workers.end_all(self._minimum(), waits=False)

    @override
    def staying(self) -> set[str]:
        minimum = self._minimum()
        keeps_templates = self.processes.keep_template or minimum > 0
        stay = [*(self._templates if keeps_templates else ()), *[*self._all_workers][:minimum]]
        return {each.status().name for each in stay}

    def _minimum(self) -> int:
        """How many workers stay while the model is idle, if others are to end."""
        return self.processes.minimum or 0

    @override
    def scale(self, count: int, reload: Callable[[], None], any_may_leave: bool) -> None:
        to_zero = type(count) is int and not count
        if to_zero:
            self._idle_workers.check_sequences()
        if not to_zero or len(self.workers) != 1:
            self._scale(1 if to_zero else count, reload, any_may_leave)
        if to_zero:
            self._idle_workers.end_all()

    def _scale(self, count: int, reload: Callable[[], None], any_may_leave: bool) -> None:
        """As :meth:`scale`, for one worker or more."""
        before, served = self.processes, len(self.workers) or len(self.processes.resources())
        self.processes = replace(before, count=count)
        try:
            self._all_workers.grow(self.processes.resources())
        except BaseException:
            self.processes = before
            raise
        try:
            reload()
        except BaseException:
            self.processes = replace(self.processes, count=served)
            self._all_workers.shrink(served, any_may_leave=False)
            raise
        self._all_workers.shrink(count, any_may_leave)

    def _title(self) -> str:
        """The model's name in those of its processes."""
        config = self.model.config
        return config.model_name if config.model_version == 1 else f"{config.model_name}-v{config.model_version}"

    def _template_spec(self, factory: Callable[..., Any]) -> WorkerSpec:
        """Raises PyTritonValidationError if the factory is not for a template."""
        processes = replace(self.processes, factory=factory)
        return replace(self._spec(0, processes.resources()[0], ""), factory=factory)

    def _spec(self, index: int, resources: WorkerResources, path: str) -> WorkerSpec:
        return WorkerSpec(
            name=f"{self._title()}-{index}",
            factory=self.processes.factory,
            takes_device=self.processes.takes_device(),
            resources=resources,
            index=index,
            path=path,
            config=self.model.config,
            options=self.model.options,
            trace_config=self.model.trace_config,
            max_requests=self.processes.max_requests,
            connector=self._connector(),
            instances=self.processes.instances_per_worker,
        )

    def _connector(self) -> Connector | None:
        connect = self.model.context.connector
        connector = None if connect is None else connect()
        return None if connector is None else connector.for_processes()

    @override
    def rebind(self, infer: Infer) -> None:
        # Only the factory of ``infer`` is used. The workers call it, and serve meanwhile.
        if not isinstance(infer, Processes):
            raise PyTritonValidationError(
                f"model {self.model.config.model_name!r} was bound with pytriton.workers.Processes; give Processes "
                "with another factory, or use bind(..., replace=True) to change that"
            )
        check_factory(infer.factory)
        with self._idle_workers.replacing:
            if self._templates.newest:
                self._templates.replace(self._template_spec(infer.factory), self._all_workers)
            else:
                self._rebind_workers(infer)
            self.callees = self.workers[0].callees
        self.processes = replace(self.processes, factory=infer.factory)

    def _rebind_workers(self, infer: Processes) -> None:
        changed: list[LocalWorkerSupervisor] = []
        try:
            for supervisor in self._all_workers:
                changed.append(supervisor)
                supervisor.rebind(infer.factory, infer.takes_device())
        except BaseException as error:  # Ctrl+C, too
            if isinstance(error, PyTritonWorkerError):  # the last one has the callable that it had
                changed.pop()
            for supervisor in changed:
                supervisor.rebind(self.processes.factory, self.processes.takes_device())
            raise

    @override
    def interrupt(self) -> None:
        self._all_workers.interrupt()
        self._templates.interrupt()

    @override
    def stop(self) -> None:
        self._idle_workers.stop()
        for each in self._processes():
            each.stop()

    @override
    def join(self) -> None:
        self._idle_workers.join()
        for each in reversed(self._processes()):  # a template ends after its workers
            each.join()

    @override
    def close(self) -> None:
        self.stop()
        self.join()
        self._all_workers.clear()
        self._templates.clear()
