"""``pytriton worker``: answers batches of models that another process, perhaps on another machine, serves."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from pytriton.cli.errors import ProgramError, TargetError
from pytriton.cli.reloader import end_with_parent
from pytriton.cli.serve import FORMAT, LEVELS
from pytriton.cli.target import Target, program_traceback
from pytriton.cluster.processes import RemoteProcesses
from pytriton.cluster.worker import RemoteWorker, WorkerOptions, run_workers
from pytriton.exceptions import PyTritonError
from pytriton.pool.resources import WorkerResources, check_shared, takes_device
from pytriton.systemd import ServiceManager
from pytriton.workers import Processes

__all__ = ["RemoteWorkerProgram"]

LIMIT_S = 24 * 3600.0  # for factories and last batches; a second signal ends them sooner


@dataclass(frozen=True)
class RemoteWorkerProgram:
    """What a worker program serves.

    Args:
        factories: Model name and factory of its callable, each.
        app_dir: The folder that modules are imported from.
        model_version: Of the models; None is any.
        device: Passed to factories that have a parameter ``device``, as ``Processes`` does.
        log_level: A level name of the module ``logging``.
        count: Worker processes for each model; a single one that does not share memory is this process.
        share: Whether those of a model share the memory of what its factory loads.
    """

    factories: Sequence[tuple[str, Target]]
    app_dir: Path
    options: WorkerOptions
    model_version: int | None
    device: str | None
    log_level: str
    count: int
    share: bool

    @classmethod
    def parse(
        cls,
        factories: Sequence[str],
        model: str | None,
        app_dir: Path,
        options: WorkerOptions,
        model_version: int | None,
        device: str | None,
        log_level: str,
        count: int,
        share: bool,
    ) -> RemoteWorkerProgram:
        """Read the command line; ``factories`` are ``[MODEL=]MODULE:FACTORY``.

        Raises:
            TargetError: An argument is malformed.
        """
        if log_level.lower() not in LEVELS:
            raise TargetError(f"there is no log level {log_level!r}; choose one of {', '.join(LEVELS)}")
        if not app_dir.is_dir():
            raise TargetError(f"the folder {app_dir} does not exist; see --app-dir")
        named = []
        for text in factories:
            name, separator, target = text.rpartition("=")
            if bool(separator) == (model is not None) or (model is not None and len(factories) > 1):
                raise TargetError("name each factory's model: MODEL=MODULE:FACTORY ..., or one factory with --model")
            named.append((name or str(model), Target.parse(target)))
        return cls(named, app_dir.resolve(), options, model_version, device, log_level.lower(), count, share)

    def run(self) -> None:
        """Answer batches until SIGTERM or SIGINT, or until a server refuses a worker; a second signal ends at once.

        Raises:
            TargetError: A module has no such factory.
            ProgramError: A factory raised an error.
            PyTritonError: A worker was refused, its callable does not fit the model, or its process cannot be started.
        """
        end_with_parent()
        sys.path.insert(0, str(self.app_dir))
        logging.basicConfig(level=self.log_level.upper(), format=FORMAT)
        manager = ServiceManager()
        reloads: SimpleQueue[int] = SimpleQueue()  # whose put() may interrupt another one
        if self.share:
            signal.signal(signal.SIGHUP, lambda number, _: reloads.put(number))
        processes = self._processes() if self.count > 1 or self.share else []
        workers = processes or self._threads()

        def leave() -> None:
            for worker in workers:
                worker.leave()

        def on_signal(number: int, _: FrameType | None) -> None:
            if ending:
                os._exit(128 + number)
            ending.append(number)
            manager.stopping(0.0)
            threading.Thread(target=leave, name="pytriton-leave").start()

        def reload() -> None:
            while reloads.get():
                while not reloads.empty():  # one stands for all that have come
                    reloads.get()
                for each in processes:
                    each.reload()

        ending: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        threading.Thread(target=reload, name="pytriton-reload", daemon=True).start()
        manager.ready(f"Answering {', '.join(model for model, _ in self.factories)} at {self.options.connect}")
        failures = run_workers([worker.run for worker in workers], leave)
        for failure in failures:
            if isinstance(failure, PyTritonError):
                raise failure
            raise ProgramError(program_traceback(failure)) from failure

    def _threads(self) -> list[RemoteWorker]:
        """One for each model, in this process."""
        resources = WorkerResources(device=self.device)
        os.environ.update(resources.environment())
        workers = []
        for model, target in self.factories:
            try:
                function = _call(target, resources.device_in_worker)
            except TargetError:
                raise
            except Exception as error:
                raise ProgramError(f"{target} failed.\n{program_traceback(error)}") from error
            workers.append(RemoteWorker(model, function, self.options, self.model_version, self.device))
        return workers

    def _processes(self) -> list[RemoteProcesses]:
        """The worker processes of each model, which have started. Only they import its module."""
        started = []
        for model, target in self.factories:
            processes = Processes(
                partial(_call_once if self.share else _call, target),
                count=self.count,
                devices=[self.device] if self.device else None,
                share=self.share,
                start_timeout_s=LIMIT_S,
                stop_timeout_s=LIMIT_S,
            )
            started.append(RemoteProcesses(model, processes, self.options, self.model_version))
            started[-1].start()
        return started


def _call(target: Target, device: str | None) -> Any:
    factory = _factory(target)
    return factory(device=device) if takes_device(factory) else factory()


def _call_once(target: Target) -> Any:
    factory = _factory(target)
    check_shared(factory)
    return factory()


def _factory(target: Target) -> Callable[..., Any]:
    factory: Callable[..., Any] = target.find()
    if not callable(factory):
        raise TargetError(f"{target} is a {type(factory).__name__}; it must be a function that returns a callable")
    return factory
