"""One bound model: its configuration, what calls its callables, and its files in the model repository."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import InstanceGroup, SequenceBatcher
from pytriton.model_config.model_config import VersionPolicy
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.validation import check_integer, groups_of_callables
from pytriton.model_spec import MAX_BATCHES_IN_FLIGHT
from pytriton.pool.pool import Infer, InferFunc, ScalablePool, ServedModel, WorkerPool, WorkerStatus
from pytriton.pool.process_pool import ProcessWorkerPool
from pytriton.pool.processes import ALL, FIRST, Processes
from pytriton.pool.remote_workers import RayWorkers, RemoteWorkers
from pytriton.pool.threads import ThreadWorkerPool
from pytriton.server.repository import remove_model, write_model

__all__ = ["Model"]


def _pool(infer: Sequence[InferFunc] | Processes | RemoteWorkers | RayWorkers, served: ServedModel) -> WorkerPool:
    if isinstance(infer, Processes):
        return ProcessWorkerPool(infer, served)
    if isinstance(infer, RemoteWorkers):
        from pytriton.cluster.pool import RemoteWorkerPool

        return RemoteWorkerPool(infer, served)
    if isinstance(infer, RayWorkers):
        from pytriton.cluster.ray import RayWorkerPool

        return RayWorkerPool(infer, served)
    return ThreadWorkerPool(infer, served)


class Model:
    """One version of a model.

    Args:
        infer: One callable per instance, what makes them in processes of their own, or what workers connect to.
        served: What the callables have in common, with the model's configuration.
        traced: Whether requests bring the server's trace context.
        native: Whether the native proxy serves it.

    Attributes:
        config: The configuration that server, callables and clients see.
        loaded: Whether the server was asked to serve it, and not yet to stop.
        version_policy: Which versions of the model the server serves now; at first as ``config`` says.
    """

    def __init__(
        self,
        infer: Sequence[InferFunc] | Processes | RemoteWorkers | RayWorkers,
        served: ServedModel,
        traced: bool = False,
        native: bool = False,
    ) -> None:
        self.config = served.config
        self.loaded = False
        self.version_policy: VersionPolicy = served.config.version_policy
        if isinstance(infer, Processes) and infer.wait_for == FIRST and len(self.config.instance_groups or ()) != 1:
            raise PyTritonValidationError(
                f"model {self.name!r} has several instance_groups, so that wait_for must be {ALL!r}"
            )
        self._pool: WorkerPool = _pool(infer, served)
        self._instances = self._pool.workers
        self._max_batches_in_flight = served.options.max_batches_in_flight
        if isinstance(infer, (RemoteWorkers, RayWorkers)):  # the workers that join change it, unless it was given
            self._max_batches_in_flight = getattr(infer, "batches_in_flight", None) or 1
        self._traced = traced
        self._native = native
        self._folders: tuple[Path, Path] | None = None  # the model repository, and the path of the sockets
        self._sends_ahead = False  # whether the proxy sends batches before earlier ones are answered

    @property
    def name(self) -> str:
        """The model's name."""
        return self.config.model_name

    @property
    def version(self) -> int:
        """The version's number."""
        return self.config.model_version

    def is_same_version(self, other: TritonModelConfig) -> bool:
        """Whether ``other`` has this model's name and version."""
        return (other.model_name, other.model_version) == (self.name, self.version)

    def check_beside(self, other: TritonModelConfig) -> None:
        """Raise unless ``other`` can be served next to this model.

        Raises:
            PyTritonInvalidOperationError: It has the same name and version; letter case does not count.
            PyTritonBadParameterError: It is another version of this model with another configuration.
        """
        if other.model_name.lower() != self.name.lower():
            return
        if other.model_version == self.version or other.model_name != self.name:
            raise PyTritonInvalidOperationError(
                f"model {self.name!r}, version {self.version}, is bound already; rebind() replaces its callable, "
                "unbind() or bind(..., replace=True) the whole model, or choose another name or version"
            )
        if replace(other, model_version=self.version) != self.config:
            raise PyTritonBadParameterError(
                f"version {other.model_version} of model {self.name!r} must have the tensors, configuration and number "
                f"of instances of version {self.version}; or bind it under another name"
            )

    @property
    def started(self) -> bool:
        """Whether a server can load the model."""
        return bool(self._instances)

    def start(
        self,
        store: Path,
        sockets: Path,
        on_disconnect: Callable[[Model], None],
        on_unrecoverable: Callable[[], None],
    ) -> None:
        """Start what calls the callables and write the model's files, so that the server can load it.

        Args:
            store: The model repository.
            sockets: Path of the sockets less their ``.<instance>`` suffix.
            on_disconnect: Called when the server's side of an instance has gone.
            on_unrecoverable: Called when a callable asks to stop the server.

        Raises:
            PyTritonWorkerError: A worker process could not be started.
        """
        self._folders = store, sockets
        self._sends_ahead = self._pool.start(sockets, lambda: on_disconnect(self), on_unrecoverable)
        if self.has_late_workers():
            self._configure(len(self._instances))
        else:
            self.write_files()

    def write_files(self) -> None:
        """Write the model's files anew, with its configuration of now; nothing before :meth:`start`."""
        if self._folders is None:
            return
        store, sockets = self._folders
        in_flight = self._max_batches_in_flight if self._sends_ahead else None
        if in_flight is not None and isinstance(self.config.batcher, SequenceBatcher):
            in_flight = 1  # else the server sends the next request of a sequence before the one before it is answered
        config = replace(self.config, version_policy=self.version_policy)
        write_model(store, config, sockets, in_flight, self._traced, self._native)

    def scale(self, count: int, reload: Callable[[], None]) -> None:
        """Change the number of worker processes.

        Args:
            count: How many.
            reload: Has the server load the model with its new configuration.

        Raises:
            PyTritonInvalidOperationError: It has threads, or several instance groups.
            PyTritonBadParameterError: ``count`` is not a positive integer.
            PyTritonWorkerError: A worker could not be started; all stays as it was.
        """
        if isinstance(self._pool, ScalablePool):
            check_integer("count", count, 1, MAX_BATCHES_IN_FLIGHT)
            self._pool.scale(count)
            return
        groups = self.config.instance_groups or ()
        if not isinstance(self._pool, ProcessWorkerPool) or len(groups) != 1:
            raise PyTritonInvalidOperationError(
                f"model {self.name!r} cannot be scaled; bind it with pytriton.workers.Processes, and without "
                "instance_groups or with one"
            )
        before = len(self._pool.workers) or len(self._pool.processes.resources())
        self._pool.scale_up(count)
        try:
            self._configure(count)
            reload()
        except BaseException:
            self._configure(before)
            self._pool.scale_down(before)
            raise
        self._pool.scale_down(count)

    def can_scale(self) -> bool:
        """Whether :meth:`scale` is possible."""
        has_one_group = len(self.config.instance_groups or ()) == 1
        return isinstance(self._pool, ScalablePool) or (isinstance(self._pool, ProcessWorkerPool) and has_one_group)

    def worker_statuses(self) -> list[WorkerStatus]:
        """What operators see of its workers; none before :meth:`start`. Thread-safe."""
        package = version("pytriton")
        return [
            replace(
                status,
                model=self.name,
                version=self.version,
                host=status.host or socket.gethostname(),
                package=status.package or package,
            )
            for status in self._pool.statuses()
        ]

    def restart_workers(self) -> None:
        """Replace each worker process by a new one when it has answered its batches. Does not wait for that.

        Raises:
            PyTritonInvalidOperationError: It has no worker processes of this process.
        """
        if not isinstance(self._pool, ProcessWorkerPool):
            raise PyTritonInvalidOperationError(
                f"the workers of model {self.name!r} cannot be restarted from here; bind it with "
                "pytriton.workers.Processes"
            )
        self._pool.restart()

    def has_late_workers(self) -> bool:
        """Whether there are workers that the start did not wait for, as ``wait_for`` says."""
        return isinstance(self._pool, ProcessWorkerPool) and self._pool.has_late_workers()

    def wait_for_late_workers(self) -> int:
        """Wait for them; returns how many workers the model can be scaled to then, 0 if the model ends."""
        assert isinstance(self._pool, ProcessWorkerPool)
        return self._pool.wait_for_late_workers()

    def _configure(self, count: int) -> None:
        (group,) = self.config.instance_groups or (InstanceGroup(),)
        self.config = replace(self.config, instance_groups=groups_of_callables([replace(group, count=None)], count))
        self.write_files()

    def rebind(self, infer: Infer) -> None:
        """Have other callables answer the batches that come from now on; raises as :meth:`WorkerPool.rebind`."""
        self._pool.rebind(infer)

    def is_served_beside(self, others: Iterable[Model]) -> bool:
        """Whether the version policy has the server serve this version; ``others`` may be of other models."""
        versions = [self.version, *(other.version for other in others if other.name == self.name)]
        return self.version in self.version_policy.served(versions)

    def is_alive(self) -> bool:
        """Whether every instance can serve."""
        return all(instance.is_alive() for instance in self._instances)

    def is_connected(self) -> bool:
        """Whether every instance has its proxy."""
        return all(instance.is_connected() for instance in self._instances)

    def was_dismissed(self) -> bool:
        """Whether the server has ended all proxies that are missing: none has died."""
        return all(instance.was_dismissed for instance in self._instances if not instance.is_connected())

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return min((instance.quiet_s() for instance in self._instances), default=math.inf)

    def queue_delay_s(self) -> float:
        """How long the server may hold a request back to fill a batch."""
        return self.config.batcher.max_queue_delay_microseconds / 1e6 if self.config.batcher else 0.0

    def wait_disconnected(self, deadline: float) -> bool:
        """Wait until no batch is in flight; False at the deadline, in :func:`time.monotonic` seconds."""
        return all(instance.wait_disconnected(max(0.0, deadline - time.monotonic())) for instance in self._instances)

    def interrupt(self) -> None:
        """End all waits for a start or a rebind, because the model ends soon. From any thread."""
        self._pool.interrupt()

    def disconnect(self) -> None:
        """End the workers, each when its callable has returned, without waiting for that. From any thread."""
        self._pool.stop()

    def join(self) -> None:
        """Wait, after :meth:`disconnect`, until worker processes have ended. From any thread."""
        self._pool.join()

    def remove_files(self) -> None:
        """Remove the model's files; its proxies, if there are any, have read them."""
        if self._folders is not None:
            remove_model(self._folders[0], self.config)

    def close(self) -> None:
        """End what calls the callables, and remove the model's files."""
        self._pool.close()
        self.remove_files()
