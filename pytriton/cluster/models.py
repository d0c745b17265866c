"""Models whose workers are elsewhere: their proxies here, the workers that have joined, and the batches between them.

Nothing here looks at a tensor. The broker's thread changes it.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytriton.cluster.broker import Broker, Connection, Peer, Service
from pytriton.cluster.call_server import CallServer, PendingCalls
from pytriton.cluster.messages import LAST_NUMBER, NUMBER, PROGRESS, Parts, decode
from pytriton.cluster.options import WorkerListener
from pytriton.cluster.pace import WorkerPace
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config import SequenceBatcher
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.batch_reports import BatchCounter
from pytriton.wire.channel import TELL_TAKEN, PeerGoneError
from pytriton.wire.control import BYE, CALL, DERIVED, LEAVE, MEMORY, OBSERVE, READY, REPORT, TAKEN, WELCOME
from pytriton.wire.frames import (
    CANCEL,
    END,
    LIMIT,
    NO_REGION,
    RELEASE,
    REQUEST,
    Frame,
    cancellation,
    error_reply,
    received_tensors,
)
from pytriton.worker.interfaces import Activity, BatchObserver, Channel
from pytriton.worker.observation import Observation

__all__ = ["JoinedWorker", "RemoteModel"]

LOGGER = get_logger("pytriton.workers")

WITHOUT_WORKERS = 64  # batches in flight: each fails in time, but none that waits behind another one would
MOST_CREDITS = 2**16  # of a worker


@dataclass(eq=False)
class Batch:
    """A batch whose last reply the proxy has not got yet."""

    connection: ProxyConnection
    frame: Frame
    arrived: float
    number: int = 0  # on the way to the worker
    sent: float = 0.0  # to a worker without another batch; 0 if it had one
    worker: JoinedWorker | None = None  # that has to answer it
    taken: bool = False  # the callable has got it, or is about to
    answered: bool = False  # in part
    cancelled: bool = False
    record: BatchObserver | None = None


class ProxyConnection(Connection):
    """A proxy of a model instance, in the server on this machine.

    Attributes:
        batches: By the proxy's numbers.
        worker: Of a model with sequences, the one that gets the proxy's batches.
        limit: Of batches in flight, as the proxy was told; 0 if it was not.
    """

    def __init__(self, broker: Broker, channel: Channel, model: RemoteModel) -> None:
        super().__init__(broker, channel)
        self.model = model
        self.end: Future[None] = Future()
        self.batches: dict[int, Batch] = {}
        self.worker: JoinedWorker | None = None
        self.limit = 0

    def is_congested(self) -> bool:
        """Whether streams should wait for the proxy."""
        return bool(self.outbox) or self.channel.is_congested()

    @override
    def read(self) -> None:
        model = self.model
        try:
            while (frame := self.channel.receive_ready()) is not None:
                if frame.kind == REQUEST:
                    batch = self.batches[frame.number] = Batch(self, frame, time.monotonic())
                    if (recorder := model.observation.recorder(model.config)) is not None:
                        batch.record = recorder.sample(frame)
                    model.activity.begin()
                    model.waiting.append(batch)
                elif frame.kind == CANCEL and (known := self.batches.get(frame.number)) is not None:
                    self._cancel(known, frame)
        finally:
            model.hand_out()
        model.tell_taken()

    def _cancel(self, batch: Batch, frame: Frame) -> None:
        """Forward the cancellation of requests; a batch that still waits is dropped with its last request."""
        waiting = self.model.waiting
        if batch.worker is not None:
            batch.cancelled = True
            frame.requests = batch.frame.requests
            batch.worker.forward(frame, batch.number)
        elif batch in waiting and json.loads(frame.metadata or b"{}").get("all"):
            waiting.remove(batch)
            batch.cancelled = True
            self.reply(batch, Frame(END, requests=batch.frame.requests))

    def reply(self, batch: Batch, frame: Frame) -> None:
        """Send a reply to the proxy; the batch ends with the last one."""
        tensors = received_tensors(frame)
        if batch.record is not None:
            if frame.kind == END and batch.cancelled:
                batch.record.end(cancelled=True)
            batch.record.replied(frame, tensors)
        frame.number, frame.region = batch.frame.number, NO_REGION
        self.send(frame, tensors)

    def fail(self, batch: Batch, message: str, code: str = "UNAVAILABLE") -> None:
        """Fail all requests of a batch."""
        self.reply(batch, error_reply(0, batch.frame.requests, message, code))

    @override
    def sent(self, frame: Frame, error: Exception | None) -> None:
        batch = self.batches.get(frame.number)
        if batch is None:
            return
        if error is not None and not isinstance(error, PeerGoneError):
            self.fail(batch, f"{type(error).__name__}: {error}", "INTERNAL")
        elif not frame.more:
            del self.batches[frame.number]
            self.model.activity.end()

    @override
    def flush(self) -> None:
        super().flush()
        if not self.outbox:
            self.model.limit()
        self.model.tell_taken()

    @override
    def ended(self, error: BaseException) -> None:
        model = self.model
        model.connections.remove(self)
        model.limit()
        for batch in self.batches.values():
            model.activity.end()
            if batch.worker is not None:
                batch.cancelled = True
                batch.worker.forward(cancellation(0, batch.frame.requests, [], True), batch.number)
            else:
                with suppress(ValueError):
                    model.waiting.remove(batch)
        self.batches.clear()
        self.end.set_exception(error)


@dataclass(eq=False)
class RemoteModel(Service):
    """The batches and workers of one model version.

    Attributes:
        options: As ``bind`` was given them.
        welcome: What a worker has to know of the model.
        observation: Counts the batches that workers report.
        on_change: Called when a worker has joined or gone.
        calls: Makes the calls of models by the callables.
        callees: Names of the models that the callables of workers call.
        derived: What a worker has answered to a ``welcome`` that asks for the model's tensors.
    """

    config: TritonModelConfig
    options: WorkerListener
    welcome: dict[str, Any]
    observation: Observation
    on_change: Callable[[], None]
    calls: CallServer = field(default_factory=lambda: CallServer(None))
    callees: frozenset[str] = frozenset()
    derived: dict[str, Any] | None = None
    activity: Activity = field(default_factory=Activity)
    connections: list[ProxyConnection] = field(default_factory=list)
    workers: dict[bytes, JoinedWorker] = field(default_factory=dict)
    waiting: deque[Batch] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.sequences = isinstance(self.config.batcher, SequenceBatcher)  # those of an instance stay with one worker
        # Whether how many batches are in flight is not ours to choose, and whether they may grow while they wait in
        # the server.
        self.is_limited = self.sequences or self.options.batches_in_flight is not None
        self.is_paced = self.config.batching and self.config.max_batch_size > 1 and not self.is_limited
        self._number = 0

    def __str__(self) -> str:
        return f"{self.config.model_name} (version {self.config.model_version})"

    # From other threads:

    def enter(self) -> str:
        """Listen for workers, until :meth:`leave`; returns the address. Raises as :meth:`Broker.enter`."""
        options = self.options
        self.broker = Broker.enter(self, options.listen, options.heartbeat_s, options.key, options.worker_keys)
        return self.broker.address

    def leave(self) -> None:
        """Tell the workers that the model goes, and forget them."""
        self.broker.leave(self)
        self.calls.close()

    def serve(self, channel: Channel) -> None:
        """Have the batches of a proxy answered until it has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        connection = ProxyConnection(self.broker, channel, self)
        self.broker.call(lambda: self._attach(connection)).result()
        try:
            connection.end.result()
        finally:
            del connection.end  # its error has a traceback that has the connection, and with it mapped memory

    def observe(self) -> None:
        """Have the workers report their batches."""
        self.broker.call(self._observe)

    def joined(self) -> list[JoinedWorker]:
        """The workers that are ready to answer batches."""
        return [worker for worker in [*self.workers.values()] if worker.ready and not worker.leaving]

    # On the broker's thread:

    @override
    def matches(self, hello: dict[str, Any]) -> bool:
        config = self.config
        is_model = hello["model"] == config.model_name and hello.get("version") in (None, config.model_version)
        return is_model and "relay" not in hello

    @override
    def join(self, broker: Broker, identity: bytes, hello: dict[str, Any]) -> JoinedWorker:
        worker = JoinedWorker(broker, self, identity, hello)
        self.workers[identity] = worker
        connector = self.calls.connector()
        worker.tell(WELCOME, {**self.welcome, "secret": None if connector is None else connector.secret})
        return worker

    @override
    def check(self, now: float) -> None:
        """Fail the batches that have waited too long for any worker."""
        if any(worker.ready for worker in self.workers.values()):
            return
        while self.waiting and now - self.waiting[0].arrived >= self.options.worker_timeout_s:
            batch = self.waiting.popleft()
            batch.connection.fail(batch, f"model {self.config.model_name!r} has no worker")

    def _observe(self) -> None:
        for worker in self.joined():
            worker.observe()

    def _attach(self, connection: ProxyConnection) -> None:
        self.connections.append(connection)
        self.limit()
        self.broker.attach(connection)

    def hand_out(self) -> None:
        """Send the batches that wait to workers with room, first come first served."""
        for _ in range(len(self.waiting)):
            worker = self._worker_for(self.waiting[0].connection)
            if worker is not None:
                batch = self.waiting.popleft()
                batch.number = self._number = self._number % LAST_NUMBER + 1
                worker.send(batch)
            elif self.sequences:  # other instances' batches may have a worker
                self.waiting.rotate(-1)
            else:
                return

    def _worker_for(self, connection: ProxyConnection) -> JoinedWorker | None:
        if self.sequences:
            worker = connection.worker
            if worker is None or worker.identity not in self.workers or worker.leaving:
                chosen = [other.worker for other in self.connections]
                worker = connection.worker = min(self.joined(), key=chosen.count, default=None)
            return worker if worker is not None and worker.has_room else None
        rooms = [worker for worker in self.workers.values() if worker.has_room]
        return min(rooms, key=lambda worker: (len(worker.batches), worker.last_batch), default=None)

    def limit(self) -> None:
        """Tell the proxies how many batches keep the workers busy, unless the user has said it.

        A proxy that has no room learns it when it has.
        """
        if self.is_limited:
            return
        most = sum(worker.wanted for worker in self.workers.values()) or WITHOUT_WORKERS
        for connection in self.connections:
            limit = math.ceil(most / len(self.connections))
            if connection.limit != limit and connection.is_free():
                with suppress(PeerGoneError):  # which reading tells too
                    connection.channel.send(Frame(LIMIT, limit))
                    connection.limit = limit

    def tell_taken(self) -> None:
        """Tell the workers how many replies of streams were taken."""
        for worker in self.workers.values():
            worker.tell_taken()

    def take_back(self, worker: JoinedWorker) -> None:
        """Have others answer the batches of a worker that has gone, if no callable has got them."""
        again = []
        for batch in worker.batches.values():
            batch.worker, connection = None, batch.connection
            if batch.frame.number not in connection.batches:
                continue
            if batch.cancelled:
                connection.reply(batch, Frame(END, requests=batch.frame.requests))
            elif not batch.answered and (self.options.idempotent or not batch.taken):
                batch.taken, batch.arrived = False, time.monotonic()
                again.append(batch)
            else:
                connection.fail(batch, f"the worker on {worker.host} was lost while it answered")
        worker.batches.clear()
        self.waiting.extendleft(reversed(again))
        self.hand_out()


class JoinedWorker(Peer):
    """A worker that has joined.

    Args:
        hello: What it told of itself.

    Attributes:
        host: The machine, as it calls itself.
        process: Its id there.
        device: That it was given; empty if none.
        package: Version of pytriton there.
        private_bytes: Memory that its process alone has (USS); None until it has told.
        pss_bytes: The same, and its part of memory that several processes share.
        joined: In seconds of :func:`time.time`.
        last_batch: Its number; of workers with as many batches, the one that has waited longest gets the next.
        credits: How many batches it takes at a time.
        is_concurrent: Whether it works on several at once.
    """

    def __init__(self, broker: Broker, model: RemoteModel, identity: bytes, hello: dict[str, Any]) -> None:
        super().__init__(broker, model, identity)
        self.model = model
        self.host, self.process = str(hello["host"]), int(hello["process"])
        self.device, self.package = str(hello.get("device") or ""), str(hello["package"])
        self.private_bytes: int | None = None
        self.pss_bytes: int | None = None
        self.joined = time.time()
        self.last_batch = 0
        self.ready = self.leaving = self.is_concurrent = False
        self.credits = 1
        self.batches: dict[int, Batch] = {}
        self._pace = WorkerPace()
        self._unreported = 0  # replies of streams that were taken, and the worker does not know of
        self._reports = BatchCounter(model.observation, model.config)
        self._calls = PendingCalls(model.calls, broker, identity)

    def __str__(self) -> str:
        return f"{self.model.config.model_name} on {self.host} (process {self.process})"

    @property
    def is_paced(self) -> bool:
        """Whether its pace tells how many batches it gets."""
        return self.model.is_paced and not self.is_concurrent

    @property
    def has_room(self) -> bool:
        """Whether it takes another batch."""
        most = 1 if self.is_paced and self._pace.is_unsure else self.credits
        return self.ready and not self.leaving and len(self.batches) < most

    @property
    def wanted(self) -> int:
        """How many batches keep it busy. More would only be smaller: what waits in the server is merged."""
        if not self.ready or self.leaving:
            return 0
        return min(self.credits, self._pace.batches) if self.is_paced else self.credits

    def send(self, batch: Batch) -> None:
        """Have it answer a batch."""
        batch.sent = 0.0 if self.batches else time.monotonic()
        batch.worker, self.batches[batch.number], self.last_batch = self, batch, batch.number
        self.forward(batch.frame, batch.number)

    def observe(self) -> None:
        """Have it report its batches, if they are to be counted."""
        if self.model.observation.metrics is not None:
            self.tell(OBSERVE)

    @override
    def take(self, frame: Frame, rest: Parts) -> None:
        busy_us, following = PROGRESS.unpack(rest[-1]) if rest else (0, 0)
        self._begin(following)
        batch = self.batches.get(frame.number)
        if batch is not None:
            self._take_reply(batch, frame, busy_us / 1e6)
        self._end_if_idle()

    def _take_reply(self, batch: Batch, frame: Frame, busy_s: float) -> None:
        """Send a reply on; ``busy_s`` is how many seconds the batch of a last reply was in the worker."""
        batch.answered = True
        if frame.more:
            self._unreported += 1
        else:
            del self.batches[frame.number]
            batch.worker = None
            took_s = time.monotonic() - batch.sent if batch.sent else 0.0
            if self._pace.answered(busy_s, took_s):
                self.model.limit()
            self.model.hand_out()  # first, because the worker waits for it
        if batch.frame.number in batch.connection.batches:
            batch.connection.reply(batch, frame)
        self.tell_taken()

    def _begin(self, number: int) -> None:
        """The callable is about to get a batch."""
        batch = self.batches.get(number)
        if batch is not None:
            batch.taken = True

    def tell_taken(self) -> None:
        """Tell it how many replies of streams were taken, unless a proxy has too many already."""
        if self._unreported >= TELL_TAKEN and not any(
            batch.connection.is_congested() for batch in self.batches.values()
        ):
            told, self._unreported = self._unreported, 0
            self.forward(Frame(RELEASE), told)

    @override
    def on_message(self, kind: bytes, parts: Parts) -> None:
        if kind == TAKEN:
            return self._begin(NUMBER.unpack(parts[0])[0])
        if kind == CALL:
            return self._calls.take(decode(parts))
        content = json.loads(bytes(parts[0]))
        if kind == REPORT:
            return self._reports.count(*content)
        if kind == MEMORY:
            self.private_bytes, self.pss_bytes = map(int, content)
            return None
        if kind == READY:
            self.ready = True
            self.credits = min(max(1, int(content["credits"])), MOST_CREDITS)
            self.is_concurrent = bool(content["is_concurrent"])
            self.model.callees |= {*map(str, content["callees"])}
            LOGGER.info("worker %s has joined", self)
            self.observe()
            self.model.limit()
            self.model.hand_out()
        elif kind == LEAVE:
            self.leaving = True
            self.model.limit()
            self._end_if_idle()
        elif kind == DERIVED:
            self.model.derived = dict(content)
        else:
            raise ValueError(f"it has joined, and says {kind!r}")
        self.model.on_change()

    def _end_if_idle(self) -> None:
        if self.leaving and not self.batches:
            LOGGER.info("worker %s has left", self)
            self.broker.forget(self)
            self.end(lost=False)

    @override
    def end(self, lost: bool) -> None:
        self.model.workers.pop(self.identity, None)
        self.model.limit()
        self._reports.cancel_all()
        self._calls.end()
        self.model.on_change()
        if lost:
            LOGGER.warning("worker %s is lost, with %d batches", self, len(self.batches))
            self.model.take_back(self)
        else:
            self.tell(BYE)
