"""A pool of workers that connect from anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pytriton.cluster.call_server import CallServer
from pytriton.cluster.models import JoinedWorker, RemoteModel
from pytriton.cluster.options import WorkerListener
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.introspection import override
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.pool.pool import Infer, ServedModel, WorkerPool, WorkerStatus
from pytriton.worker.context import Binding
from pytriton.worker.instance import Instance

__all__ = ["RemoteWorkerPool"]

CHECK_S = 0.5


class ForwardingExecutor:
    """Has workers elsewhere answer the batches. Methods: see :class:`pytriton.worker.interfaces.Executor`."""

    answer = None

    def __init__(self, model: RemoteModel) -> None:
        self.serve = model.serve
        self.quiet_s, self.batches = model.activity.quiet_s, model.activity.batches

    def drain(self) -> None:
        """As :meth:`Executor.drain`."""

    def close(self) -> None:
        """As :meth:`Executor.close`."""


class RemoteWorkerPool(WorkerPool):
    """Hands a model's batches to the workers that have joined."""

    def __init__(self, options: WorkerListener, model: ServedModel) -> None:
        super().__init__(model)
        if model.options.warmup:
            raise PyTritonValidationError(
                f"model {model.config.model_name!r} has model_warmup and RemoteWorkers; warm up in the workers' factory"
            )
        self.workers: list[Instance] = []
        self._options = options
        self._changed = threading.Condition()
        self._over = False
        config = model.config
        given = {name: value for name, value in asdict(model.options).items() if name != "warmup"}
        welcome = {
            "config": ModelConfigGenerator(config).get_config(),
            "version": config.model_version,
            "options": given,
            "trace_config": None if model.trace_config is None else list(model.trace_config),
        }
        calls = CallServer(model.context.connector)
        self._model = RemoteModel(config, options, welcome, model.observation, self._on_change, calls)
        self._listens = False

    @property
    @override
    def batches_in_flight(self) -> int:
        return self._options.batches_in_flight or 1  # unless it was given, the workers that join change it

    def _on_change(self) -> None:
        with self._changed:
            self.callees = self._model.callees
            self._changed.notify_all()

    def joined(self) -> list[JoinedWorker]:
        """The workers that answer batches now."""
        return self._model.joined()

    @override
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        address = self._model.enter()
        self._listens = True
        self.model.observation.follow(self._model.observe)
        try:
            self._start_workers(address)
            self._wait_for_workers(self._options.min_workers)
        except BaseException:
            self.close()
            raise
        executor = ForwardingExecutor(self._model)
        binding = Binding(executor.serve, self.model.config, self.model.context)
        for index in range(self._options.instances):
            self.workers.append(Instance(f"{sockets}.{index}", binding, executor, on_disconnect))
        return True

    def _start_workers(self, address: str) -> None:
        """Nothing: others start the workers."""

    def _check_workers(self) -> None:
        """Raise PyTritonWorkerError if a worker that is waited for cannot join."""

    def _wait_for_workers(self, count: int) -> None:
        deadline = time.monotonic() + self._options.start_timeout_s
        with self._changed:
            while not self._over and len(self.joined()) < count and time.monotonic() < deadline:
                self._changed.wait(min(CHECK_S, max(0.0, deadline - time.monotonic())))
                self._check_workers()
        if len(self.joined()) < count:
            reason = "it was stopped" if self._over else f"within {self._options.start_timeout_s:g} s"
            name = self.model.config.model_name
            raise PyTritonWorkerError(
                f"{len(self.joined())} of {count} workers of model {name!r} joined {self._options.listen}, {reason}; "
                f"start them with: pytriton worker MODULE:FACTORY --model {name} --connect ADDRESS"
            )

    @override
    def statuses(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(
                f"{each.model.config.model_name} on {each.host}, process {each.process}",
                "remote",
                "ready",
                each.process,
                since=each.joined,
                batches=len(each.batches),
                device=each.device,
                host=each.host,
                package=each.package,
                private_bytes=each.private_bytes,
                pss_bytes=each.pss_bytes,
            )
            for each in self.joined()
        ]

    @override
    def rebind(self, infer: Infer) -> None:
        raise PyTritonValidationError(
            f"the callables of model {self.model.config.model_name!r} are those of its remote workers: start workers "
            "with the new ones, and end the others"
        )

    @override
    def interrupt(self) -> None:
        self._over = True
        self._on_change()

    @override
    def stop(self) -> None:
        self.interrupt()
        for instance in list(self.workers):
            instance.close()

    @override
    def join(self) -> None:
        pass  # the workers belong to others

    @override
    def close(self) -> None:
        self.stop()
        for instance in self.workers:
            instance.wait_ended()
        self.workers.clear()
        if self._listens:
            self._listens = False
            self.model.observation.unfollow(self._model.observe)
            self._model.leave()
