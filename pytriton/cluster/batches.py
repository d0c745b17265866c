"""What the server's side knows of models, proxies, workers and the batches between them. One thread changes it."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pytriton.model_config import SequenceBatcher
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.batch_reports import BatchCounter
from pytriton.pool.remote_workers import RemoteWorkers
from pytriton.wire.frames import Frame
from pytriton.wire.tensors import Tensor
from pytriton.worker.interfaces import Activity, Channel
from pytriton.worker.observation import Observation

__all__ = ["Batch", "Connection", "JoinedWorker", "RemoteModel", "WorkerPace"]

WEIGHT = 0.2  # of the last batch
LEAST_SHARE, MOST_SHARE = 0.2, 0.35  # of travel in the callable's time: one batch below the first, two above the second
MEASURE_S = 1.0


@dataclass(eq=False)
class Batch:
    """A batch whose last reply the proxy has not got yet."""

    number: int  # on the way to the worker
    connection: Connection
    frame: Frame
    arrived: float
    sent: float = 0.0  # to a worker without another batch; 0 if it had one
    worker: JoinedWorker | None = None  # that has to answer it
    taken: bool = False  # the callable has got it, or is about to
    answered: bool = False  # in part
    cancelled: bool = False


@dataclass(eq=False)
class Connection:
    """A proxy of a model instance.

    Attributes:
        outbox: Replies that its socket has no room for yet. Credits, and congestion of streams, limit them.
    """

    channel: Channel
    model: RemoteModel
    ended: Future[None] = field(default_factory=Future)
    batches: dict[int, Batch] = field(default_factory=dict)  # by the proxy's numbers
    favourite: JoinedWorker | None = None  # of a model with sequences
    outbox: deque[tuple[Batch, Frame, list[Tensor]]] = field(default_factory=deque)
    limit: int = 0  # of batches in flight, as the proxy was told; 0 if it was not
    descriptor: int = field(init=False)

    def __post_init__(self) -> None:
        self.descriptor = self.channel.fileno()
        self._room = select.poll()
        self._room.register(self.descriptor, select.POLLOUT)

    def is_writable(self) -> bool:
        """Whether a reply can be sent without waiting for the proxy."""
        return bool(self._room.poll(0))

    def is_congested(self) -> bool:
        """Whether streams should wait for the proxy."""
        return bool(self.outbox) or self.channel.is_congested()


class WorkerPace:
    """How many batches hide the time that they travel to a worker that works on one after the other, and back.

    One, if that time is short beside the time of the callable: then two would only be smaller. Else two.

    Attributes:
        batches: How many.
    """

    def __init__(self) -> None:
        self.batches = 2
        self._busy_s = self._travel_s = 0.0
        self._due = 0.0

    @property
    def is_unsure(self) -> bool:
        """Whether a batch should be sent when the worker has no other one, so that its travel can be measured."""
        return time.monotonic() >= self._due

    def answered(self, busy_s: float, took_s: float) -> bool:
        """Count a batch; whether another number of batches is right now.

        Args:
            busy_s: Seconds in the worker.
            took_s: Seconds from sending it to its answer; 0 if it waited for another one meanwhile.
        """
        self._busy_s = _smooth(self._busy_s, busy_s)
        if took_s:
            self._travel_s = _smooth(self._travel_s, max(took_s - busy_s, 1e-6))
            self._due = time.monotonic() + MEASURE_S
        if not self._travel_s:
            return False
        before, share = self.batches, self._travel_s / max(self._busy_s, 1e-6)
        self.batches = 1 if share < (LEAST_SHARE if before == 2 else MOST_SHARE) else 2
        return self.batches != before


def _smooth(before: float, now: float) -> float:
    return now if not before else before + (now - before) * WEIGHT


@dataclass(eq=False)
class JoinedWorker:
    """A worker that has joined.

    Attributes:
        identity: Of its connection.
        host: The machine, as it calls itself.
        process: Its id there.
        device: That it was given; empty if none.
        package: Version of pytriton there.
        joined: In seconds of :func:`time.time`.
        credits: How many batches it takes at a time.
        is_concurrent: Whether it works on several at once.
    """

    identity: bytes
    model: RemoteModel
    host: str
    process: int
    device: str = ""
    package: str = ""
    joined: float = field(default_factory=time.time)
    last_batch: int = 0  # its number; of workers with as many batches, the one that has waited longest gets the next
    ready: bool = False
    credits: int = 1
    is_concurrent: bool = False
    pace: WorkerPace = field(default_factory=WorkerPace)
    leaving: bool = False
    batches: dict[int, Batch] = field(default_factory=dict)
    untold: int = 0  # replies of streams that were taken, and the worker does not know of
    reports: BatchCounter = field(init=False)

    def __post_init__(self) -> None:
        self.reports = BatchCounter(self.model.observation, self.model.config)

    def __str__(self) -> str:
        return f"{self.model.name} on {self.host} (process {self.process})"

    @property
    def has_room(self) -> bool:
        """Whether it takes another batch."""
        most = 1 if self.is_paced and self.pace.is_unsure else self.credits
        return self.ready and not self.leaving and len(self.batches) < most

    @property
    def is_paced(self) -> bool:
        """Whether its pace tells how many batches it gets."""
        return self.model.is_paced and not self.is_concurrent

    @property
    def wanted(self) -> int:
        """How many batches keep it busy. More would only be smaller: what waits in the server is merged."""
        if not self.ready or self.leaving:
            return 0
        return min(self.credits, self.pace.batches) if self.is_paced else self.credits


@dataclass(eq=False)
class RemoteModel:
    """The batches and workers of one model version.

    Attributes:
        config: Of the model.
        options: As ``bind`` was given them.
        welcome: What a worker has to know of the model.
        observation: Counts the batches that workers report.
        on_change: Called when a worker has joined or gone.
        derived: What a worker has answered to a ``welcome`` that asks for the model's tensors.
    """

    config: TritonModelConfig
    options: RemoteWorkers
    welcome: dict[str, Any]
    observation: Observation
    on_change: Callable[[], None]
    derived: dict[str, Any] | None = None
    activity: Activity = field(default_factory=Activity)
    connections: list[Connection] = field(default_factory=list)
    workers: dict[bytes, JoinedWorker] = field(default_factory=dict)
    waiting: deque[Batch] = field(default_factory=deque)
    sequences: bool = field(init=False)  # the batches of an instance should go to one worker
    is_limited: bool = field(init=False)  # how many batches are in flight is not ours to choose
    is_paced: bool = field(init=False)  # batches may grow while they wait in the server

    def __post_init__(self) -> None:
        self.sequences = isinstance(self.config.batcher, SequenceBatcher)
        self.is_limited = self.sequences or self.options.batches_in_flight is not None
        self.is_paced = self.config.batching and self.config.max_batch_size > 1 and not self.is_limited

    @property
    def name(self) -> str:
        """Of the model."""
        return self.config.model_name

    @property
    def version(self) -> int:
        """Of the model."""
        return self.config.model_version

    def matches(self, hello: dict[str, Any]) -> bool:
        """Whether a worker answers this model."""
        return hello.get("model") == self.name and hello.get("version") in (None, self.version)
