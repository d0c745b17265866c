"""Common parts of the pools: what makes one, what it can do, and the callable of one instance with its executor."""

from __future__ import annotations

import math
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import ModelConfig, Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.resources import memory_of
from pytriton.signature.derive import Derived
from pytriton.signature.examples import Example
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.failures import FailureLog
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance, make_executor
from pytriton.worker.interfaces import Executor, ListenLocally
from pytriton.worker.observation import Observation
from pytriton.worker.serial import ParallelExecutor, SerialExecutor

__all__ = [
    "Infer",
    "InferFunc",
    "ScalablePool",
    "ServedCallable",
    "ServedModel",
    "Traffic",
    "Worker",
    "WorkerPool",
    "WorkerStatus",
    "Workers",
]

InferFunc = Callable[..., Any]


class Workers(ABC):
    """What a pool is made of: callables, or what ``bind`` takes in place of them."""

    def model_name(self) -> str:
        """The name of a model that is bound without one.

        Raises:
            PyTritonValidationError: There is none that says anything.
        """
        raise PyTritonValidationError(f"{type(self).__name__} have no name for a model; give bind() a model_name too")

    def look_up(self, bound: Callable[[str], TritonModelConfig | None]) -> None:  # noqa: B027  (most need no others)
        """Look at other models, before :meth:`derive`.

        Args:
            bound: Returns the configuration of the model of a name, if there is one.

        Raises:
            PyTritonValidationError: One is missing, or does not fit.
        """

    @abstractmethod
    def instance_count(self) -> int:
        """How many model instances the server has."""

    @abstractmethod
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        """The tensors of a model, from its callable.

        Raises:
            PyTritonValidationError: They cannot be derived.
            PyTritonWorkerError: The worker that was asked failed, or there is none.
        """

    @abstractmethod
    def pool(self, model: ServedModel) -> WorkerPool:
        """The pool of a model."""


Infer = InferFunc | Sequence[InferFunc] | Workers


@dataclass(frozen=True)
class WorkerStatus:
    """What operators see of a worker.

    Attributes:
        kind: ``thread``, ``process`` or ``remote``; ``template`` is none, but forks those that share memory.
        state: ``starting``, ``ready``, ``restarting``, ``at zero``, ``leaving``, ``failed`` or ``stopped``. At zero, it
            has no process until a batch comes.
        pid: Of its process on its host; None if there is none at the moment.
        restarts: How often its process was started again, but from zero.
        last_error: Why its process ended the last time, if it did not end well.
        since: When its state began, in seconds since 1970; None if that is not known.
        batches: How many it has and has not answered; None if only its own process counts them.
        device: That it was given; empty if none.
        instances: How many model instances it has, each of which calls the callable on a thread of its own.
        host: Its machine, as it calls itself.
        package: Version of pytriton there.
        model: Name of its model.
        private_bytes: Memory that its process alone has (USS); of a remote worker, as it has told in the last seconds.
            None for threads.
        pss_bytes: The same, and its part of memory that several processes share: the sum is what all take together.
    """

    name: str
    kind: str
    state: str
    pid: int | None = None
    restarts: int = 0
    last_error: str = ""
    since: float | None = None
    batches: int | None = None
    device: str = ""
    instances: int = 1
    host: str = ""
    package: str = ""
    model: str = ""
    version: int = 1
    private_bytes: int | None = None
    pss_bytes: int | None = None

    def with_memory(self) -> WorkerStatus:
        """The same, with the memory of its process, if it has one of its own that has not ended."""
        memory = None if self.pid is None or self.kind not in ("process", "template") else memory_of(self.pid)
        return self if memory is None else replace(self, private_bytes=memory[0], pss_bytes=memory[1])


class Worker(Protocol):
    """Answers the batches of one model instance. All methods are thread-safe."""

    @property
    def was_dismissed(self) -> bool:
        """Whether the server closed the last proxy that disconnected; False if that proxy died."""

    def is_alive(self) -> bool:
        """Whether the instance can answer now, or after a restart that is under way."""

    def is_connected(self) -> bool:
        """Whether a proxy is connected."""

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or until the end; False at the timeout."""


class Traffic(Protocol):
    """Where a model passes its requests on to."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The share of each model; empty if the shares cannot change."""

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None: ...

    def counted(self) -> dict[str, int]:
        """What became of how many requests."""


class WorkerPool(ABC):
    """The workers of one model.

    Attributes:
        model: What its callables share.
        workers: One per instance that the server has; empty before :meth:`start`. It is always the same list.
        is_seen_by_server: Whether each worker is a model instance of the server, or several.
        callees: Names of the models that its callables are known to call.
        traffic: Of a model that passes its requests on; else None.
        parameters: What the model's configuration in the server needs beside what the model says.
    """

    is_seen_by_server: ClassVar[bool] = True
    workers: Sequence[Worker]

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.callees: frozenset[str] = frozenset()
        self.traffic: Traffic | None = None
        self.parameters: Mapping[str, str] = {}

    @property
    def instances_per_worker(self) -> int:
        """How many model instances each worker is."""
        return 1

    @property
    def batches_in_flight(self) -> int:
        """How many batches each proxy may send before the first one is answered, if :meth:`start` allows several."""
        return self.model.options.max_batches_in_flight

    @abstractmethod
    def statuses(self) -> list[WorkerStatus]:
        """Of all workers, also of those that do not serve yet; empty ``host`` and ``package`` are this process' own.

        Thread-safe.
        """

    @abstractmethod
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """Start the workers, warm them up, and listen for their proxies.

        Args:
            sockets: Path of the sockets without their ``.<instance>`` suffix.
            on_disconnect: Called when the server's side of an instance has disconnected.
            on_unrecoverable: Called when a callable asks to stop the server.

        Returns:
            Whether a proxy may send a batch before the worker has answered the one before it.

        Raises:
            PyTritonWorkerError: A worker could not be started.
        """

    @abstractmethod
    def rebind(self, infer: Infer) -> None:
        """Answer the batches that arrive from now on with other callables.

        Raises:
            PyTritonValidationError: There are not as many as instances, or they are of another kind.
            PyTritonWorkerError: A worker could not; all have their previous callables.
        """

    def restart(self) -> None:
        """Replace each worker's process by a new one when it has answered its batches. Does not wait for that.

        Raises:
            PyTritonInvalidOperationError: They are no processes that this one started.
        """
        raise PyTritonInvalidOperationError(
            f"the workers of model {self.model.config.model_name!r} cannot be restarted from here; bind it with "
            "pytriton.workers.Processes"
        )

    def idle_s(self) -> float:
        """Seconds since the last batch for workers that :meth:`end_idle` would end; infinite if there are none."""
        return math.inf

    def end_idle(self) -> None:  # noqa: B027  (threads stay)
        """End the workers that may end while the model is idle, each until a batch comes for it; does not wait.

        Raises:
            PyTritonInvalidOperationError: They may have open sequences, or their callables are being replaced.
        """

    def staying(self) -> Collection[str]:
        """Names of the processes that :meth:`end_idle` leaves."""
        return ()

    @abstractmethod
    def interrupt(self) -> None:
        """Abort a :meth:`start` or :meth:`rebind` that another thread waits for. Thread-safe."""

    @abstractmethod
    def stop(self) -> None:
        """Have the workers end, each when its callable has returned. Thread-safe; does not wait."""

    @abstractmethod
    def join(self) -> None:
        """After :meth:`stop`, wait until worker processes have ended; those that take too long are killed."""

    @abstractmethod
    def close(self) -> None:
        """Stop, join, and release workers and callables."""


class ScalablePool(WorkerPool):
    """A pool whose number of workers can change."""

    @abstractmethod
    def scale(self, count: int, reload: Callable[[], None], any_may_leave: bool) -> None:
        """Have so many workers; those that go answer their last batches first.

        Args:
            count: 0, where the pool allows it, leaves one, whose process ends until a batch comes.
            reload: Has the server learn of the new number; called once the workers that are added are ready. Not called
                for 0 if there is one worker.
            any_may_leave: The server chooses those that leave, as it keeps the instances of the others.

        Raises:
            PyTritonBadParameterError: ``count`` is not an integer in the range.
            PyTritonInvalidOperationError: They do not serve yet, or may have open sequences.
            PyTritonWorkerError: A worker could not be started; all stays as it was.
        """


@dataclass(frozen=True)
class ServedModel:
    """The data that the callables of one model share.

    Attributes:
        trace_config: For worker processes that export traces.
        listen_locally: Connects proxies that run in this process without a socket.
        recording: What is recorded from the start.
        failures: Logs errors of the callables.
    """

    config: TritonModelConfig
    context: TritonContext
    options: Options
    observation: Observation
    trace_config: Sequence[str] | None = None
    listen_locally: ListenLocally | None = None
    recording: Recording | None = None
    failures: FailureLog = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", FailureLog(self.config.model_name))


class ServedCallable:
    """Answers the batches of one model instance with a callable, which may be replaced.

    Args:
        concurrent: Whether the proxy may send a batch before the one before it is answered.
        name: Of the instance, for its threads.
        instances: How many model instances it answers, each with one batch at a time; more than one only if
            ``concurrent`` is false.
        on_unrecoverable: Called when the callable asks to stop the server.
    """

    def __init__(
        self,
        function: Any,
        model: ServedModel,
        concurrent: bool,
        name: str,
        on_unrecoverable: Callable[[], None],
        instances: int = 1,
    ) -> None:
        self._model = model
        self.binding = Binding(function, model.config, model.context)
        self._on_unrecoverable = on_unrecoverable
        self._inferences: list[Inference] = []
        self._binding_lock = threading.Lock()
        self.executor: Executor
        if instances > 1:
            self.executor = ParallelExecutor(lambda: SerialExecutor(self._make_inference()))
        else:
            self.executor = make_executor(function, self._make_inference(), concurrent, name)
        self._instance: Instance | None = None

    def _make_inference(self) -> Inference:
        with self._binding_lock:
            function, model = self.binding.callable, self._model
            inference = Inference(
                function,
                model.config,
                model.options,
                self._on_unrecoverable,
                whole_batch_form(function),
                self.binding,
                model.failures,
                model.observation,
            )
            self._inferences.append(inference)
        return inference

    def listen(
        self,
        path: str,
        on_disconnect: Callable[[], None],
        on_connect: Callable[[], None] = lambda: None,
        inherited: socket.socket | None = None,
    ) -> Instance:
        """Listen for the proxy; the arguments are those of :class:`Instance`."""
        listen_locally = self._model.listen_locally
        self._instance = Instance(
            path, self.binding, self.executor, on_disconnect, on_connect, inherited, listen_locally
        )
        return self._instance

    def rebind(self, function: Any) -> None:
        """Answer the batches that arrive from now on with another callable."""
        with self._binding_lock:
            self.binding = Binding(function, self._model.config, self._model.context)
            if self._instance is not None:
                self._instance.rebind(self.binding)
            for inference in self._inferences:
                inference.rebind(self.binding, whole_batch_form(function))
