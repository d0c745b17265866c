"""``RemoteWorkers`` and ``RayWorkers``, which ``bind`` takes in place of callables. Their pools need pyzmq."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from typing import Any

from pytriton.cluster.options import WorkerListener
from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import override
from pytriton.model_config import ModelConfig
from pytriton.options import FLAG, SECONDS, check, integer, option
from pytriton.pool.pool import ServedModel, WorkerPool, Workers
from pytriton.pool.processes import MAX_WORKERS, Processes
from pytriton.signature.derive import Derived
from pytriton.signature.examples import Example

__all__ = ["RayWorkers", "RemoteWorkers"]


@dataclass(frozen=True)
class RemoteWorkers(WorkerListener, Workers):
    """Workers for a model on this and other machines: ``pytriton worker`` programs, which connect to this process.

    Any number of workers may join and leave while the model is served. Models with the same ``listen`` share the port.
    Needs pyzmq (``pip install 'pytriton[cluster]'``).

    Args:
        listen: Address to listen on: ``tcp://0.0.0.0:5555``, ``tcp://127.0.0.1:5555`` or ``ipc:///run/models.sock``.
            Without keys, only this machine may connect: ``ipc://``, or a loopback address.
        key: File with this side's secret key (``pytriton keys``).
        worker_keys: Folder with the public keys of the workers that may connect, read at the start.
        min_workers: ``bind``, ``run`` and ``serve`` wait until so many workers have joined; 0 waits for none.
        start_timeout_s: For how long they wait.
        worker_timeout_s: How long a batch waits for a worker, while there is none, before it fails with UNAVAILABLE.
        idempotent: Whether a batch may be repeated on another worker if the one that was computing it is lost. Batches
            that no callable has got yet are always sent to another one.
        batches_in_flight: How many batches each instance hands over before it waits, while the server merges further
            requests. Default: as many as the workers that have joined need. That is one for each worker of a plain
            function that takes long beside the time that a batch travels, two for each that takes less, and
            ``ModelConfig.max_batches_in_flight`` for each worker of a coroutine function or a decoupled model.
        instances: Model instances of the server, which share the workers. Sequences need several: each instance sends
            its sequences to one worker, as long as that worker is there.
        heartbeat_s: A worker that is silent for three times as long is lost. A worker whose process has ended is
            noticed sooner.

    Raises:
        PyTritonValidationError: Workers of other machines may connect without keys.
        PyTritonBadParameterError: Another argument has a wrong value.
        ImportError: pyzmq is not installed.
    """

    @override
    def instance_count(self) -> int:
        return self.instances

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        from pytriton.cluster.derivation import derived_by_worker

        if examples:
            raise PyTritonValidationError(
                f"model {name!r} has RemoteWorkers, which take no example; annotate the callable, or give inputs and "
                "outputs"
            )
        return derived_by_worker(self, name, version, config)

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        from pytriton.cluster.pool import RemoteWorkerPool

        return RemoteWorkerPool(self, model)


@dataclass(frozen=True)
class RayWorkers(Workers):
    """Workers for a model in actors of Ray, which places them on its nodes and restarts them.

    The actors connect to this process, which is a driver or an actor of the same cluster, over ZeroMQ with keys made
    for this model. Needs Ray (``pip install 'pytriton[ray]'``); ``ray.init()`` is called if the program has not.

    Args:
        factory: Makes the inference callable, in each actor; sent as Ray sends functions. A parameter ``device``
            receives ``"cuda:0"`` with ``num_gpus``, as the actor sees its own GPU alone.
        count: Number of actors; ``Triton.scale`` and ``Autoscaler`` change it.
        workers_per_actor: Worker processes in each actor, for which its resources are.
        share: Whether the workers of an actor share the memory of what ``factory`` loads, as those of
            :class:`Processes` do. To have one copy on each node, make one actor on each.
        num_cpus: Of each actor; None is Ray's default.
        num_gpus: Of each actor; may be a fraction.
        resources: Custom resources of each actor.
        scheduling_strategy: Ray's: ``"SPREAD"``, a placement group's, a node's.
        address: At which the actors reach this process; default: this node's, as Ray knows it.
        start_timeout_s: How long ``bind``, ``run`` and ``serve`` wait until all have joined.
        worker_timeout_s: As for :class:`RemoteWorkers`.
        idempotent: As for :class:`RemoteWorkers`.
        heartbeat_s: As for :class:`RemoteWorkers`.

    Raises:
        PyTritonValidationError: ``factory`` cannot be called, or takes a device although workers share memory.
        PyTritonBadParameterError: Another argument has a wrong value.
        ImportError: Ray or pyzmq is not installed.
    """

    factory: Callable[..., Any]
    _: KW_ONLY
    count: int = option(1, integer())
    workers_per_actor: int = option(1, integer(1, MAX_WORKERS))
    share: bool = option(False, FLAG)
    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] | None = None
    scheduling_strategy: Any = None
    address: str | None = None
    start_timeout_s: float = option(300.0, SECONDS)
    worker_timeout_s: float = option(30.0, SECONDS)
    idempotent: bool = option(False, FLAG)
    heartbeat_s: float = option(2.0, SECONDS)

    def __post_init__(self) -> None:
        check(self)
        self.processes()
        if find_spec("zmq") is None or find_spec("ray") is None:
            raise ImportError("RayWorkers need Ray and pyzmq; run pip install 'pytriton[ray]'")

    def processes(self) -> Processes:
        """The workers of one actor."""
        return Processes(
            self.factory,
            count=self.workers_per_actor,
            devices=["cuda:0"] if self.num_gpus else None,
            share=self.share,
            start_timeout_s=self.start_timeout_s,
        )

    @override
    def instance_count(self) -> int:
        return 1

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        raise PyTritonValidationError("inputs and outputs of a model with RayWorkers are missing; give both")

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        from pytriton.cluster.ray import RayWorkerPool

        requirements = {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "resources": dict(self.resources) if self.resources else None,
            "scheduling_strategy": self.scheduling_strategy,
        }
        limits = {
            "start_timeout_s": self.start_timeout_s,
            "worker_timeout_s": self.worker_timeout_s,
            "idempotent": self.idempotent,
            "heartbeat_s": self.heartbeat_s,
        }
        return RayWorkerPool(self.processes(), self.count, self.address, requirements, limits, model)
