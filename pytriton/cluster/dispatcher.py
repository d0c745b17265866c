"""Hands the batches of proxies to workers, and their replies back. Looks at no tensor. For one thread."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

from pytriton.cluster.batches import Batch, Connection, JoinedWorker, RemoteModel
from pytriton.cluster.messages import encode_forwarded, tensors_to_forward
from pytriton.cluster.router import Router
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import CANCEL, END, ERROR, LIMIT, NO_REGION, RELEASE, REQUEST, Frame
from pytriton.wire.tensors import FrameError, Tensor

__all__ = ["Dispatcher"]

TELL_TAKEN = 8
WITHOUT_WORKERS = 64  # batches in flight: each fails in time, but none that waits behind another one would
CANCEL_ALL = b'{"requests": [], "all": true}'


class Dispatcher:
    """The batches between proxies and workers.

    Args:
        router: Leads to the workers.

    Attributes:
        full: Proxies that have no room for a reply; call :meth:`flush` when they may have.
    """

    def __init__(self, router: Router) -> None:
        self.full: set[Connection] = set()
        self._router = router
        self._numbers = count(1)

    # Proxies:

    def read(self, connection: Connection) -> None:
        """Take what a proxy has sent.

        Raises:
            PeerGoneError, FrameError: As :meth:`Channel.receive`.
        """
        model = connection.model
        try:
            while (frame := connection.channel.receive_ready()) is not None:
                if frame.kind == REQUEST:
                    batch = Batch(next(self._numbers), connection, frame, time.monotonic())
                    connection.batches[frame.number] = batch
                    model.activity.begin()
                    model.waiting.append(batch)
                elif frame.kind == CANCEL and (known := connection.batches.get(frame.number)) is not None:
                    self._cancel(known, frame)
        finally:
            self.hand_out(model)
        self._tell_taken(model.workers.values())

    def drop(self, connection: Connection) -> None:
        """Cancel the batches of a proxy that has gone."""
        connection.outbox.clear()
        self.full.discard(connection)
        for batch in connection.batches.values():
            connection.model.activity.end()
            if batch.worker is not None:
                batch.cancelled = True
                cancel = Frame(CANCEL, 0, batch.frame.requests, metadata=CANCEL_ALL)
                self._router.send(batch.worker.identity, encode_forwarded(cancel, batch.number))
            else:
                with suppress(ValueError):
                    connection.model.waiting.remove(batch)
        connection.batches.clear()

    def flush(self, connection: Connection) -> None:
        """Send the replies that waited for room."""
        while connection.outbox and connection.is_writable():
            self._deliver(*connection.outbox.popleft())
        if not connection.outbox:
            self.full.discard(connection)
            self.limit(connection.model)
        self._tell_taken(connection.model.workers.values())

    def _cancel(self, batch: Batch, frame: Frame) -> None:
        """Forward the cancellation of requests; a batch that still waits is dropped with its last request."""
        waiting = batch.connection.model.waiting
        if batch.worker is not None:
            batch.cancelled = True
            frame.requests = batch.frame.requests
            self._router.send(batch.worker.identity, encode_forwarded(frame, batch.number))
        elif batch in waiting and json.loads(frame.metadata or b"{}").get("all"):
            waiting.remove(batch)
            self._reply(batch, Frame(END, requests=batch.frame.requests))

    def _reply(self, batch: Batch, frame: Frame) -> None:
        """Send a reply to the proxy, or keep it until the proxy has room; the batch ends with the last one."""
        connection = batch.connection
        tensors = tensors_to_forward(frame)
        frame.number, frame.region = batch.frame.number, NO_REGION
        if not connection.outbox and connection.is_writable():
            self._deliver(batch, frame, tensors)
        else:
            connection.outbox.append((batch, frame, tensors))
            self.full.add(connection)

    def _deliver(self, batch: Batch, frame: Frame, tensors: list[Tensor]) -> None:
        connection = batch.connection
        try:
            connection.channel.send(frame, tensors)
        except (ArenaFullError, FrameError) as error:
            frame = self._failure(batch, f"{type(error).__name__}: {error}", "INTERNAL")
            with suppress(PeerGoneError):
                connection.channel.send(frame)
        except PeerGoneError:
            pass  # which reading tells too
        if not frame.more and connection.batches.pop(frame.number, None) is not None:
            connection.model.activity.end()

    def fail(self, batch: Batch, message: str) -> None:
        """Fail all requests of a batch with UNAVAILABLE."""
        self._reply(batch, self._failure(batch, message, "UNAVAILABLE"))

    def _failure(self, batch: Batch, message: str, code: str) -> Frame:
        metadata = json.dumps({"message": message, "code": code, "isolate": False}).encode()
        return Frame(ERROR, batch.frame.number, batch.frame.requests, metadata=metadata)

    # Workers:

    def hand_out(self, model: RemoteModel) -> None:
        """Send the batches that wait to workers with room, first come first served."""
        waiting = model.waiting
        for _ in range(len(waiting)):
            worker = self._worker_for(waiting[0])
            if worker is not None:
                batch = waiting.popleft()
                batch.sent = 0.0 if worker.batches else time.monotonic()
                batch.worker, worker.batches[batch.number], worker.last_batch = worker, batch, batch.number
                self._router.send(worker.identity, encode_forwarded(batch.frame, batch.number))
            elif model.sequences:  # other instances' batches may have a worker
                waiting.rotate(-1)
            else:
                return

    def _worker_for(self, batch: Batch) -> JoinedWorker | None:
        model, connection = batch.connection.model, batch.connection
        if model.sequences:
            worker = connection.favourite
            if worker is None or worker.identity not in model.workers or worker.leaving:
                chosen = [other.favourite for other in model.connections]
                ready = [worker for worker in model.workers.values() if worker.ready and not worker.leaving]
                worker = connection.favourite = min(ready, key=chosen.count, default=None)
            return worker if worker is not None and worker.has_room else None
        rooms = [worker for worker in model.workers.values() if worker.has_room]
        return min(rooms, key=lambda worker: (len(worker.batches), worker.last_batch), default=None)

    def limit(self, model: RemoteModel) -> None:
        """Tell the proxies how many batches keep the workers busy, unless the user has said it.

        A proxy that has no room learns it from :meth:`flush`.
        """
        if model.is_limited:
            return
        most = sum(worker.wanted for worker in model.workers.values()) or WITHOUT_WORKERS
        for connection in model.connections:
            limit = math.ceil(most / len(model.connections))
            if connection.limit != limit and not connection.outbox and connection.is_writable():
                with suppress(PeerGoneError):  # which reading tells too
                    connection.channel.send(Frame(LIMIT, limit))
                    connection.limit = limit

    def take_reply(self, worker: JoinedWorker, frame: Frame, busy_s: float = 0.0) -> None:
        """Send a worker's reply on.

        Args:
            worker: Which sent it.
            frame: The reply.
            busy_s: Of a last reply, seconds that the batch was in the worker.
        """
        batch = worker.batches.get(frame.number)
        if batch is None:
            return
        batch.answered = True
        if frame.more:
            worker.untold += 1
        else:
            del worker.batches[frame.number]
            batch.worker = None
            took_s = time.monotonic() - batch.sent if batch.sent else 0.0
            if worker.pace.answered(busy_s, took_s):
                self.limit(worker.model)
            self.hand_out(worker.model)  # first, because the worker waits for it
        if batch.frame.number in batch.connection.batches:
            self._reply(batch, frame)
        self._tell_taken((worker,))

    def _tell_taken(self, workers: Iterable[JoinedWorker]) -> None:
        """Tell workers how many replies of streams were taken, unless the proxy has too many already."""
        for worker in workers:
            if worker.untold >= TELL_TAKEN and not any(
                batch.connection.is_congested() for batch in worker.batches.values()
            ):
                told, worker.untold = worker.untold, 0
                self._router.send(worker.identity, encode_forwarded(Frame(RELEASE), told))

    def take_back(self, worker: JoinedWorker) -> None:
        """Have others answer the batches of a worker that has gone, if no callable has got them."""
        again = []
        for batch in worker.batches.values():
            batch.worker = None
            if batch.frame.number not in batch.connection.batches:
                continue
            if batch.cancelled:
                self._reply(batch, Frame(END, requests=batch.frame.requests))
            elif not batch.answered and (worker.model.options.idempotent or not batch.taken):
                batch.taken, batch.arrived = False, time.monotonic()
                again.append(batch)
            else:
                self.fail(batch, f"the worker on {worker.host} was lost while it answered")
        worker.batches.clear()
        worker.model.waiting.extendleft(reversed(again))
        self.hand_out(worker.model)

    def fail_late(self, model: RemoteModel, now: float) -> None:
        """Fail the batches that have waited too long for any worker; ``now`` is of :func:`time.monotonic`."""
        if any(worker.ready for worker in model.workers.values()):
            return
        while model.waiting and now - model.waiting[0].arrived >= model.options.worker_timeout_s:
            self.fail(model.waiting.popleft(), f"model {model.name!r} has no worker")
