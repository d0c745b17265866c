"""What the server's side knows of models, proxies, workers and the batches between them. One thread changes it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pytriton.pool.remote_workers import RemoteWorkers
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import Activity, Channel

__all__ = ["Batch", "Connection", "RemoteModel", "RemoteWorker"]


@dataclass
class Batch:
    """A batch without its last reply."""

    number: int  # on the way to the worker
    connection: Connection
    proxy_number: int
    frame: Frame
    arrived: float
    worker: RemoteWorker | None = None
    taken: bool = False  # the callable has got it, or is about to
    answered: bool = False  # in part
    cancelled: bool = False


@dataclass(eq=False)
class Connection:
    """A proxy of a model instance."""

    channel: Channel
    model: RemoteModel
    ended: Future[None] = field(default_factory=Future)
    batches: dict[int, Batch] = field(default_factory=dict)  # by the proxy's numbers
    favourite: RemoteWorker | None = None  # of a model with sequences


@dataclass(eq=False)
class RemoteWorker:
    """A worker that has joined.

    Attributes:
        identity: Of its connection.
        host: The machine, as it calls itself.
        process: Its id there.
        credits: How many batches it takes at a time.
        joined: In seconds of :func:`time.time`.
        answered: Number of batches.
    """

    identity: bytes
    model: RemoteModel
    host: str
    process: int
    credits: int
    joined: float = field(default_factory=time.time)
    answered: int = 0
    last_batch: int = 0  # its number; of workers with as many batches, the one that has waited longest gets the next
    is_async: bool = False
    ready: bool = False
    leaving: bool = False
    batches: dict[int, Batch] = field(default_factory=dict)
    untold: int = 0  # replies of streams that were taken, and the worker does not know of

    def __str__(self) -> str:
        return f"{self.model.name} on {self.host} (process {self.process})"

    @property
    def has_room(self) -> bool:
        """Whether it takes another batch."""
        return self.ready and not self.leaving and len(self.batches) < self.credits


class RemoteModel:
    """The batches and workers of one model version.

    Args:
        name: Of the model.
        version: Of the model.
        welcome: What a worker has to know of it.
        options: As ``bind`` was given them.
        sequences: Whether the batches of an instance should go to one worker.
        on_change: Called when a worker has joined or gone.
    """

    def __init__(
        self,
        name: str,
        version: int,
        welcome: dict[str, Any],
        options: RemoteWorkers,
        sequences: bool,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.version = version
        self.welcome = welcome
        self.options = options
        self.sequences = sequences
        self.on_change = on_change
        self.activity = Activity()
        self.workers: dict[bytes, RemoteWorker] = {}
        self.waiting: deque[Batch] = deque()

    def matches(self, hello: dict[str, Any]) -> bool:
        """Whether a worker answers this model."""
        return hello.get("model") == self.name and hello.get("version") in (None, self.version)
