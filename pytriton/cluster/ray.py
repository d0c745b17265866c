"""Remote workers in actors of Ray: it places, restarts and moves them; batches reach them over ZeroMQ."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pytriton.cluster.keys import PUBLIC, SECRET, WorkerKeys, make_keys
from pytriton.cluster.options import WorkerListener
from pytriton.cluster.pool import RemoteWorkerPool
from pytriton.cluster.processes import RemoteProcesses
from pytriton.cluster.worker import RemoteWorker, WorkerOptions
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonWorkerError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config.validation import check_integer
from pytriton.pool.pool import ScalablePool, ServedModel
from pytriton.pool.processes import Processes
from pytriton.threads import keep_running

__all__ = ["RayWorkerPool"]

LOGGER = get_logger("pytriton.workers")

LEAVE_TIMEOUT_S = 30.0
MAX_ACTORS = 2**16
SERVER, WORKER = "server", "worker"


class Actor:
    """An actor with one worker or several. Ray makes another one of the same arguments when its process has died.

    It ends with its workers, for instance when a callable that was made again does not fit the model.

    Args:
        processes: What it serves; several workers, or those that share memory, are processes of their own.
    """

    def __init__(self, processes: Processes, model: str, version: int, options: WorkerOptions) -> None:
        self._worker: RemoteWorker | RemoteProcesses
        first, *others = processes.resources()
        if others or processes.share:
            self._worker = RemoteProcesses(model, processes, options, version)
            self._worker.start()
        else:
            arguments = {"device": first.device_in_worker} if processes.takes_device() else {}
            self._worker = RemoteWorker(model, processes.factory(**arguments), options, version, first.device)
        self._is_leaving = False
        self._thread = keep_running(self._serve, "pytriton-remote-worker", on_failure=lambda _: os._exit(1))

    def _serve(self) -> None:
        self._worker.run()
        if not self._is_leaving:
            os._exit(1)

    def is_ready(self) -> bool:
        """Whether the callable is made; Ray raises what the factory raised."""
        return True

    def leave(self) -> None:
        """Answer the batches that have come, and end."""
        self._is_leaving = True
        self._worker.leave()
        self._thread.join(LEAVE_TIMEOUT_S)


class RayWorkerPool(RemoteWorkerPool, ScalablePool):
    """Starts and ends the actors of a model.

    Args:
        processes: Of each actor.
        count: Number of actors.
        address: At which they reach this process; None is this node's, as Ray knows it.
        requirements: Of each actor, as Ray's options; None is Ray's default.
        limits: Further arguments of :class:`WorkerListener`.
    """

    is_seen_by_server = False

    def __init__(
        self,
        processes: Processes,
        count: int,
        address: str | None,
        requirements: Mapping[str, Any],
        limits: Mapping[str, Any],
        model: ServedModel,
    ) -> None:
        self._ray = import_module("ray")
        if not self._ray.is_initialized():
            self._connect()
        self._processes, self._count = replace(processes, stop_timeout_s=LEAVE_TIMEOUT_S), count
        self._per_actor = len(processes.resources())
        self._requirements = {name: value for name, value in requirements.items() if value is not None}
        self._folder = tempfile.TemporaryDirectory(prefix="pytriton-keys-")
        self._actors: list[Any] = []
        self._made: list[Any] = []  # Ray's promises of the actors that are not ready yet
        keys = Path(self._folder.name)
        (keys / "allowed").mkdir()
        make_keys(keys, SERVER)
        public, _ = make_keys(keys, WORKER)
        (keys / "allowed" / public.name).write_text(public.read_text())
        self._keys = WorkerKeys.load(keys / (WORKER + SECRET), keys / (SERVER + PUBLIC))
        host = address or self._ray.util.get_node_ip_address()
        options = WorkerListener(
            f"tcp://{host}:0",
            key=keys / (SERVER + SECRET),
            worker_keys=keys / "allowed",
            min_workers=count * self._per_actor,
            **limits,
        )
        super().__init__(options, model)

    def _connect(self) -> None:
        """Connect to Ray, and keep the handler of SIGTERM: that of Ray would end ``serve`` with status 15."""
        before = signal.getsignal(signal.SIGTERM)
        self._ray.init(logging_level=logging.WARNING)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)

    @property
    def count(self) -> int:
        """The number of actors."""
        return len(self._actors) or self._count

    def _start_workers(self, address: str) -> None:
        self._folder.cleanup()  # the keys are read
        self._address = address
        self._add(self._count)

    def _add(self, count: int) -> None:
        actor = self._ray.remote(Actor).options(max_restarts=-1, **self._requirements)
        config = self.model.config
        for _ in range(count):
            made = actor.remote(
                self._processes,
                config.model_name,
                config.model_version,
                WorkerOptions(self._address, self._keys, heartbeat_s=self._options.heartbeat_s),
            )
            self._actors.append(made)
            self._made.append(made.is_ready.remote())

    def _check_workers(self) -> None:
        ready, self._made = (
            self._ray.wait(self._made, num_returns=len(self._made), timeout=0) if self._made else ([], [])
        )
        try:
            self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            raise PyTritonWorkerError(
                f"an actor of model {self.model.config.model_name!r} cannot be started: {error}"
            ) from error

    @override
    def scale(self, count: int, reload: Callable[[], None], any_may_leave: bool) -> None:
        check_integer("count", count, 1, MAX_ACTORS)
        before = len(self._actors)
        if not before:
            raise PyTritonInvalidOperationError("the model does not serve yet; scale it later")
        if count > before:
            self._add(count - before)
            try:
                self._wait_for_workers(count * self._per_actor)
            except BaseException:
                self._remove(before)
                raise
        self._remove(count)
        self._count = count

    def _remove(self, count: int) -> None:
        gone = self._actors[count:]
        del self._actors[count:]
        self._made.clear()
        leaving = [actor.leave.remote() for actor in gone]
        if leaving:
            self._ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_TIMEOUT_S)
        for actor in gone:
            self._ray.kill(actor)

    @override
    def close(self) -> None:
        super().close()
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._folder.cleanup()
