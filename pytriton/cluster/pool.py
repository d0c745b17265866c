"""A pool of workers that connect from anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pytriton.cluster.batches import JoinedWorker, RemoteModel
from pytriton.cluster.hub import Hub
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.pool.pool import Infer, ServedModel, WorkerStatus
from pytriton.pool.remote_workers import RemoteWorkers
from pytriton.worker.context import Binding
from pytriton.worker.instance import Instance
from pytriton.worker.interfaces import Channel

__all__ = ["RemoteWorkerPool"]

CHECK_S = 0.5


class ForwardingExecutor:
    """Has a hub answer the batches of an instance. Methods: see :class:`pytriton.worker.interfaces.Executor`."""

    answer = None

    def __init__(self, hub: Hub, model: RemoteModel) -> None:
        self._hub = hub
        self._model = model
        self.quiet_s, self.batches = model.activity.quiet_s, model.activity.batches

    def serve(self, channel: Channel) -> None:
        """As :meth:`Executor.serve`."""
        self._hub.serve(self._model, channel)

    def drain(self) -> None:
        """As :meth:`Executor.drain`."""

    def close(self) -> None:
        """As :meth:`Executor.close`."""


class RemoteWorkerPool:
    """Hands a model's batches to the workers that have joined. Methods: see :class:`WorkerPool`."""

    def __init__(self, remote: RemoteWorkers, model: ServedModel) -> None:
        if model.options.warmup:
            raise PyTritonValidationError(
                f"model {model.config.model_name!r} has model_warmup and RemoteWorkers; warm up in the workers' factory"
            )
        self.workers: list[Instance] = []
        self._options = remote
        self._served = model
        self._changed = threading.Condition()
        self._over = False
        config = model.config
        options = {name: value for name, value in asdict(model.options).items() if name != "warmup"}
        welcome = {
            "config": ModelConfigGenerator(config).get_config(),
            "version": config.model_version,
            "options": options,
            "trace_config": None if model.trace_config is None else list(model.trace_config),
        }
        self._model = RemoteModel(config, remote, welcome, model.observation, self._on_change)
        self._hub: Hub | None = None

    def _on_change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def joined(self) -> list[JoinedWorker]:
        """The workers that answer batches now."""
        return self._hub.workers(self._model) if self._hub is not None else []

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """As :meth:`WorkerPool.start`; waits for ``min_workers``.

        Raises:
            PyTritonWorkerError: They did not join in time, or the address cannot be listened on.
        """
        self._hub = hub = Hub.enter(self._model)
        self._served.observation.follow(self._observe)
        try:
            self._start_workers(hub.address)
            self._wait_for_workers(self._options.min_workers)
        except BaseException:
            self.close()
            raise
        executor = ForwardingExecutor(hub, self._model)
        binding = Binding(executor.serve, self._served.config, self._served.context)
        for index in range(self._options.instances):
            self.workers.append(Instance(f"{sockets}.{index}", binding, executor, on_disconnect))
        return True

    def _observe(self) -> None:
        """Metrics are enabled."""
        if self._hub is not None:
            self._hub.observe(self._model)

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
            name = self._served.config.model_name
            raise PyTritonWorkerError(
                f"{len(self.joined())} of {count} workers of model {name!r} joined {self._options.listen}, {reason}; "
                f"start them with: pytriton worker MODULE:FACTORY --model {name} --connect ADDRESS"
            )

    def statuses(self) -> list[WorkerStatus]:
        """As :meth:`WorkerPool.statuses`, of those that have joined."""
        return [
            WorkerStatus(
                f"{each.model.name} on {each.host}, process {each.process}",
                "remote",
                "leaving" if each.leaving else "ready" if each.ready else "starting",
                each.process,
                since=each.joined,
                batches=len(each.batches),
                device=each.device,
                host=each.host,
                package=each.package,
            )
            for each in self.joined()
        ]

    def rebind(self, infer: Infer) -> None:
        """As :meth:`WorkerPool.rebind`: not possible, as the workers bring their callables."""
        raise PyTritonValidationError(
            f"the callables of model {self._served.config.model_name!r} are those of its remote workers: start workers "
            "with the new ones, and end the others"
        )

    def interrupt(self) -> None:
        """As :meth:`WorkerPool.interrupt`."""
        self._over = True
        self._on_change()

    def stop(self) -> None:
        """As :meth:`WorkerPool.stop`."""
        self.interrupt()
        for instance in list(self.workers):
            instance.close()

    def join(self) -> None:
        """As :meth:`WorkerPool.join`: the workers belong to others."""

    def close(self) -> None:
        """As :meth:`WorkerPool.close`; the workers are told."""
        self.stop()
        for instance in self.workers:
            instance.wait_ended()
        self.workers.clear()
        hub, self._hub = self._hub, None
        if hub is not None:
            self._served.observation.unfollow(self._observe)
            hub.leave(self._model)
