"""One bound model: its configuration, what calls its callables, and its files in the model repository."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.model_config import DirectStrategy, InstanceGroup, Recording, SequenceBatcher
from pytriton.model_config.model_config import VersionPolicy
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.validation import check_batcher_of_proxy, groups_of_callables
from pytriton.pool.memory_budget import ModelMemory
from pytriton.pool.pool import Infer, ScalablePool, ServedModel, Traffic, Workers, WorkerStatus
from pytriton.server.repository import remove_model, write_model
from pytriton.worker.recording import RecordingStatus

__all__ = ["Model"]


@cache
def _package_version() -> str:
    return version("pytriton")


class Model:
    """One version of a model.

    Args:
        served: What the callables have in common, with the model's configuration.
        traced: Whether requests bring the server's trace context.
        native: Whether the native proxy serves it.

    Attributes:
        config: The configuration that server, callables and clients see.
        loaded: Whether the server was asked to serve it, and not yet to stop.
        refused: Whether a server that was launched again has not loaded it so far.
        version_policy: Which versions of the model the server serves now; at first as ``config`` says.
    """

    def __init__(self, workers: Workers, served: ServedModel, traced: bool = False, native: bool = False) -> None:
        self.config = served.config
        self.loaded = self.refused = False
        self.version_policy: VersionPolicy = served.config.version_policy
        self._pool = workers.pool(served)
        self._observation, self._recording = served.observation, served.recording
        self._instances = self._pool.workers
        self._traced = traced
        self._native = native
        self._loads = 0
        self._folders: tuple[Path, Path] | None = None  # the model repository, and the path of the sockets
        self._memory: dict[str, int] = {}  # in bytes, of each process by name, when it was ready
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
            sockets: Path of the sockets less their ``.<instance>`` suffix.
            on_disconnect: Called when the server's side of an instance has gone.
            on_unrecoverable: Called when a callable asks to stop the server.

        Raises:
            PyTritonWorkerError: A worker process could not be started.
            PyTritonInvalidOperationError: It cannot be recorded as its configuration says.
        """
        self._folders = store, sockets
        self._sends_ahead = self._pool.start(sockets, lambda: on_disconnect(self), on_unrecoverable)
        if self._recording is not None:
            self.start_recording(self._recording)
        self.write_files()

    @property
    def sockets(self) -> Path | None:
        """Path of the sockets less their ``.<instance>`` suffix; None before :meth:`start`."""
        return None if self._folders is None else self._folders[1]

    def write_files(self) -> None:
        """Write the model's files anew, with its configuration of now; nothing before :meth:`start`."""
        if self._folders is None:
            return
        store, sockets = self._folders
        in_flight = self._pool.batches_in_flight if self._sends_ahead else None
        if in_flight is not None and isinstance(self.config.batcher, SequenceBatcher):
            in_flight = 1  # else the server sends the next request of a sequence before the one before it is answered
        parameters = {**self.config.backend_parameters, **self._pool.parameters}
        config = replace(self.config, version_policy=self.version_policy, backend_parameters=parameters)
        if in_flight is not None:
            check_batcher_of_proxy(config, "coroutine functions, decoupled models and remote workers")
        in_place = self._scales_in_place()
        write_model(store, config, sockets, in_flight, self._traced, self._native, in_place, self._loads)

    def scale(self, count: int, reload: Callable[[], None]) -> None:
        """Change the number of worker processes.

        Args:
            count: 0 leaves one instance, whose worker starts when a batch comes.
            reload: Has the server load the model with its new configuration.

        Raises:
            PyTritonInvalidOperationError: It has threads, or several instance groups; or its workers cannot end yet, as
                there may be open sequences.
            PyTritonBadParameterError: ``count`` is not an integer in the range.
            PyTritonWorkerError: A worker could not be started; all stays as it was.
        """
        pool = self._scalable_pool()
        if pool is None:
            raise PyTritonInvalidOperationError(
                f"model {self.name!r} cannot be scaled; bind it with pytriton.workers.Processes, and without "
                "instance_groups or with one"
            )
        config, instances = self.config, count or 1
        in_place = self._scales_in_place() and self.loaded
        if in_place and instances < len(self._instances) and not self._removes_in_place():
            in_place, self._loads = False, self._loads + 1

        def reconfigure() -> None:
            try:
                self._configure(instances)
                reload()
            except BaseException:
                self.config = config
                self.write_files()
                raise

        pool.scale(count, reconfigure, in_place)

    def _scales_in_place(self) -> bool:
        """Whether the server adds and removes instances beside those that stay, which keep their sequences.

        It needs proxies that find a free worker. Other models are loaded again, with new instances.
        """
        has_instances = self.can_scale() and self._pool.is_seen_by_server
        is_alone = self._pool.instances_per_worker == 1  # else the server may remove one instance of each worker
        return has_instances and is_alone and self._native and isinstance(self.config.batcher, SequenceBatcher)

    def _removes_in_place(self) -> bool:
        """Whether the server may remove instances beside those that stay.

        With the oldest strategy, that may crash Triton 2.51: it deletes an instance's batcher while the last request of
        a sequence is still being completed.
        """
        batcher = self.config.batcher
        return isinstance(batcher, SequenceBatcher) and isinstance(batcher.strategy, DirectStrategy)

    def can_scale(self) -> bool:
        """Whether :meth:`scale` is possible."""
        return self._scalable_pool() is not None

    def _scalable_pool(self) -> ScalablePool | None:
        """The pool, if the number of its workers can change."""
        pool, groups = self._pool, self.config.instance_groups or ()
        if isinstance(pool, ScalablePool) and (len(groups) == 1 or not pool.is_seen_by_server):
            return pool
        return None

    def worker_statuses(self) -> list[WorkerStatus]:
        """What operators see of its workers; none before :meth:`start`. Thread-safe."""
        package = _package_version()
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

    def memory(self) -> ModelMemory:
        """As :meth:`Idling.memory`."""
        taken = leaving = freed = 0
        staying = self._pool.staying()
        for status in self._pool.statuses():
            if status.kind == "remote":  # on another machine
                continue
            known = status.with_memory()
            memory = known.pss_bytes or 0
            if status.state == "ready":
                self._memory[status.name] = memory
            elif status.state in ("starting", "restarting"):
                memory = max(memory, self._memory.get(status.name, 0))
            taken += memory
            leaving += memory if status.state == "leaving" else 0
            if status.state == "ready" and status.name not in staying:  # what it shares with others stays with them
                freed += (known.private_bytes or 0) if staying else memory
        return ModelMemory(taken, leaving, freed)

    def idle_s(self) -> float:
        """As :meth:`WorkerPool.idle_s`."""
        return self._pool.idle_s()

    def end_idle(self) -> None:
        """As :meth:`WorkerPool.end_idle`."""
        self._pool.end_idle()

    def restart_workers(self) -> None:
        """As :meth:`WorkerPool.restart`."""
        self._pool.restart()

    @property
    def traffic(self) -> Traffic | None:
        """Of a model that passes its requests on; else None."""
        return self._pool.traffic

    def start_recording(self, recording: Recording) -> None:
        """As :meth:`Observation.start_recording`."""
        self._observation.start_recording(self.config, recording)

    def stop_recording(self) -> RecordingStatus | None:
        """As :meth:`Observation.stop_recording`."""
        return self._observation.stop_recording(self.config)

    def recording_status(self) -> RecordingStatus | None:
        """What has come of the recording so far; None without one."""
        recorder = self._observation.recorder(self.config)
        return None if recorder is None else recorder.status()

    def _configure(self, count: int) -> None:
        (group,) = self.config.instance_groups or (InstanceGroup(),)
        instances = count * self._pool.instances_per_worker
        self.config = replace(self.config, instance_groups=groups_of_callables([replace(group, count=None)], instances))
        self.write_files()

    def rebind(self, infer: Infer) -> None:
        """Have other callables answer the batches that come from now on; raises as :meth:`WorkerPool.rebind`."""
        self._pool.rebind(infer)

    def is_served_beside(self, others: Iterable[Model]) -> bool:
        """Whether the version policy has the server serve this version; ``others`` may be of other models."""
        versions = [self.version, *(other.version for other in others if other.name == self.name)]
        return self.version in self.version_policy.served(versions)

    def is_alive(self) -> bool:
        """Whether every instance can serve. Thread-safe: one that is removed leaves the list before it ends."""
        return all(instance.is_alive() or instance not in self._instances for instance in [*self._instances])

    @property
    def callees(self) -> frozenset[str]:
        """Names of the models that its callables are known to call."""
        return self._pool.callees

    @property
    def waits_for_callees(self) -> bool:
        """Whether an instance answers one batch at a time, and waits meanwhile for other models."""
        return bool(self.callees) and not self._sends_ahead

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
        self.stop_recording()

    def remove_files(self) -> None:
        """Remove the model's files; its proxies, if there are any, have read them."""
        if self._folders is not None:
            remove_model(self._folders[0], self.config)

    def close(self) -> None:
        """End what calls the callables, and remove the model's files."""
        self._pool.close()
        self.stop_recording()
        self.remove_files()
