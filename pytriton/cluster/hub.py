"""The server's side of remote workers: hands batches of proxies to workers, and their replies back.

One thread does all of it, for all models that listen on one address. It only forwards: no tensor is looked at.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import zmq

from pytriton import forks
from pytriton.cluster.batches import Batch, Connection, RemoteModel, RemoteWorker
from pytriton.cluster.keys import secure_server
from pytriton.cluster.messages import (
    BYE,
    FRAME,
    HELLO,
    LEAVE,
    NUMBER,
    PROBE,
    PROTOCOL,
    READY,
    REFUSED,
    TAKEN,
    WELCOME,
    configure,
    decode,
    encode,
    tensors_to_forward,
)
from pytriton.exceptions import PyTritonWorkerError
from pytriton.pool.remote_workers import RemoteWorkers
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import CANCEL, END, ERROR, NO_REGION, RELEASE, REQUEST, Frame
from pytriton.wire.tensors import FrameError, Tensor
from pytriton.worker.interfaces import Channel

__all__ = ["Hub"]

LOGGER = logging.getLogger("pytriton.workers")

PROBE_S = 0.2
TELL_TAKEN = 8
LOGGED_REFUSALS = 100  # of different workers; further ones are not logged
COPY_BELOW_BYTES = 64 * 1024


_hubs: dict[str, Hub] = {}
_hubs_lock = threading.Lock()


class Hub:
    """Listens on one address for the workers of any number of models, until the last one has left it.

    Args:
        options: The address, keys and heartbeat. Port 0 is any free one.

    Attributes:
        address: Where it listens.

    Raises:
        PyTritonWorkerError: It cannot listen there.
    """

    @classmethod
    def enter(cls, model: RemoteModel) -> Hub:
        """The hub of a model's address, which has the model from now on.

        Raises:
            PyTritonWorkerError: It cannot listen, or a model with other keys listens there.
        """
        options = model.options
        with _hubs_lock:
            hub = _hubs.get(options.listen)
            if hub is None:
                hub = cls(options)
                _hubs[hub.address] = hub
            elif (hub.options.key, hub.options.worker_keys) != (options.key, options.worker_keys):
                raise PyTritonWorkerError(f"another model listens on {options.listen} with other keys")
            hub._models.append(model)
            return hub

    def __init__(self, options: RemoteWorkers) -> None:
        self.options = options
        self._models: list[RemoteModel] = []
        self._numbers = count(1)
        self._workers: dict[bytes, RemoteWorker] = {}
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopped = False
        self._refused: set[str] = set()
        self.address = options.listen
        self._next_probe = 0.0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._authenticator: Any = None
        self._waking, self._woken = self._context.socket(zmq.PUSH), self._context.socket(zmq.PULL)
        try:
            configure(self._router, options.heartbeat_s)
            self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            if options.key is not None and options.worker_keys is not None:
                self._authenticator = secure_server(
                    self._context, self._router, Path(options.key), Path(options.worker_keys)
                )
            self._router.bind(options.listen)
            endpoint = self._router.get(zmq.LAST_ENDPOINT)
            assert isinstance(endpoint, bytes)
            if options.listen.endswith(":0"):
                self.address = endpoint.rstrip(b"\0").decode()
        except zmq.ZMQError as error:
            self._close()
            raise PyTritonWorkerError(f"remote workers cannot connect: {options.listen}: {error}") from error
        except BaseException:
            self._close()
            raise
        self._woken.bind("inproc://wake")
        self._waking.connect("inproc://wake")
        self._wake_lock = threading.Lock()
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._woken, zmq.POLLIN)
        forks.register(self)
        self._thread = threading.Thread(target=self._run, name=f"pytriton-{options.listen}", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """In a forked child there is no thread, and pyzmq leaves the parent's sockets alone."""
        _hubs.clear()

    # From other threads:

    def leave(self, model: RemoteModel) -> None:
        """Forget a model, after telling its workers."""
        with suppress(PeerGoneError):
            self._on_thread(lambda: self._dismiss(model)).result()
        with _hubs_lock:
            self._models.remove(model)
            if self._models:
                return
            _hubs.pop(self.address, None)
        self._stopped = True
        self._wake()
        self._thread.join()

    def serve(self, model: RemoteModel, channel: Channel) -> None:
        """Have the batches of a proxy answered until it has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        connection = Connection(channel, model)
        self._on_thread(lambda: self._attach(connection))
        connection.ended.result()

    def workers(self, model: RemoteModel) -> list[RemoteWorker]:
        """Those that are ready to answer batches of a model."""
        return [worker for worker in [*model.workers.values()] if worker.ready and not worker.leaving]

    def _on_thread(self, call: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._calls.append((call, done))
        self._wake()
        if not self._thread.is_alive():
            self._refuse_calls()
        return done

    def _refuse_calls(self) -> None:
        while self._calls:
            with suppress(IndexError):
                self._calls.popleft()[1].set_exception(PeerGoneError("remote workers are not listened to any more"))

    def _wake(self) -> None:
        with self._wake_lock, suppress(zmq.ZMQError):
            self._waking.send(b"", zmq.NOBLOCK)

    # On the hub's thread:

    def _run(self) -> None:
        try:
            while not self._stopped:
                for ready, _ in self._poller.poll(int(PROBE_S * 1e3)):
                    if ready is self._router:
                        self._receive()
                    elif ready is self._woken:
                        self._make_calls()
                    else:
                        self._read(self._connections[ready])
                self._keep_watch()
        except BaseException:
            LOGGER.exception("the connection to remote workers has failed; their models are not served any more")
        finally:
            for connection in [*self._connections.values()]:
                self._detach(connection, PeerGoneError("remote workers are not listened to any more"))
            self._close()
            self._refuse_calls()

    def _close(self) -> None:
        for item in (self._router, self._waking, self._woken):
            item.close(0)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _make_calls(self) -> None:
        with suppress(zmq.Again):
            while True:
                self._woken.recv(zmq.NOBLOCK)
        while self._calls:
            call, done = self._calls.popleft()
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

    def _attach(self, connection: Connection) -> None:
        descriptor = connection.channel.fileno()
        self._connections[descriptor] = connection
        self._poller.register(descriptor, zmq.POLLIN)
        self._read(connection)

    def _detach(self, connection: Connection, error: BaseException) -> None:
        """Forget a proxy that has gone, and cancel its batches."""
        for descriptor, other in [*self._connections.items()]:
            if other is connection:
                del self._connections[descriptor]
                self._poller.unregister(descriptor)
        for batch in [*connection.batches.values()]:
            self._cancel(batch, Frame(CANCEL, 0, batch.frame.requests, metadata=b'{"requests": [], "all": true}'))
            self._forget(batch)
        if not connection.ended.done():
            connection.ended.set_exception(error)

    def _read(self, connection: Connection) -> None:
        """Take what a proxy has sent."""
        try:
            while (frame := connection.channel.receive_ready()) is not None:
                if frame.kind == REQUEST:
                    batch = Batch(next(self._numbers), connection, frame.number, frame, time.monotonic())
                    connection.batches[frame.number] = batch
                    connection.model.activity.begin()
                    connection.model.waiting.append(batch)
                elif frame.kind == CANCEL and (known := connection.batches.get(frame.number)) is not None:
                    self._cancel(known, frame)
        except (PeerGoneError, FrameError) as error:
            self._detach(connection, error)
        self._hand_out(connection.model)
        self._tell_taken(connection.model)

    def _hand_out(self, model: RemoteModel) -> None:
        """Send the batches that wait to workers with room, first come first served."""
        waiting = model.waiting
        for _ in range(len(waiting)):
            worker = self._worker_for(waiting[0])
            if worker is not None:
                self._send_batch(worker, waiting.popleft())
            elif model.sequences:  # other instances' batches may have a worker
                waiting.rotate(-1)
            else:
                return

    def _worker_for(self, batch: Batch) -> RemoteWorker | None:
        model, connection = batch.connection.model, batch.connection
        if model.sequences:
            worker = connection.favourite
            if worker is None or worker.identity not in model.workers or worker.leaving:
                chosen = [other.favourite for other in self._connections.values() if other.model is model]
                ready = [worker for worker in model.workers.values() if worker.ready and not worker.leaving]
                worker = connection.favourite = min(ready, key=chosen.count, default=None)
            return worker if worker is not None and worker.has_room else None
        rooms = [worker for worker in model.workers.values() if worker.has_room]
        return min(rooms, key=lambda worker: (len(worker.batches), worker.last_batch), default=None)

    def _send_batch(self, worker: RemoteWorker, batch: Batch) -> None:
        batch.worker, worker.batches[batch.number], worker.last_batch = worker, batch, batch.number
        self._send_frame(worker, batch.frame, batch.number)

    def _send_frame(self, worker: RemoteWorker, frame: Frame, number: int) -> None:
        size = frame.data_bytes
        data = frame.data[:size] if size else b""
        empty = [Tensor(item[0], item[1], item[2], item[3], item[5], ()) for item in frame.tensors]
        self._send(worker, *encode(frame, number, empty, data), copy=size < COPY_BELOW_BYTES)

    def _send(self, worker: RemoteWorker, kind: bytes, *parts: Any, copy: bool = True) -> None:
        try:
            self._router.send_multipart([worker.identity, kind, *parts], zmq.NOBLOCK, copy=copy)
        except zmq.Again:  # not without a limit of messages
            raise
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._lose(worker)

    def _cancel(self, batch: Batch, frame: Frame) -> None:
        """Forward the cancellation of requests; a batch that still waits is dropped with its last request."""
        model = batch.connection.model
        if batch.worker is not None:
            batch.cancelled = True
            frame.requests = batch.frame.requests
            self._send_frame(batch.worker, frame, batch.number)
        elif json.loads(frame.metadata or b"{}").get("all"):
            with suppress(ValueError):
                model.waiting.remove(batch)
            self._reply(batch, Frame(END, requests=batch.frame.requests))

    def _forget(self, batch: Batch) -> None:
        """Forget a batch that has its last reply, or none to come."""
        connection = batch.connection
        if connection.batches.pop(batch.proxy_number, None) is None:
            return
        connection.model.activity.end()
        with suppress(ValueError):
            if batch.worker is None:
                connection.model.waiting.remove(batch)

    def _reply(self, batch: Batch, frame: Frame) -> None:
        """Send a reply to the proxy; the batch ends with the last one."""
        connection = batch.connection
        frame.number, frame.region = batch.proxy_number, NO_REGION
        more = frame.more
        try:
            connection.channel.send(frame, tensors_to_forward(frame))
        except (ArenaFullError, FrameError) as error:
            more = False
            self._fail(batch, f"{type(error).__name__}: {error}", "INTERNAL")
        except PeerGoneError:
            pass  # which reading tells too
        if not more:
            self._forget(batch)

    def _fail(self, batch: Batch, message: str, code: str) -> None:
        metadata = json.dumps({"message": message, "code": code, "isolate": False}).encode()
        frame = Frame(ERROR, batch.proxy_number, batch.frame.requests, metadata=metadata)
        with suppress(PeerGoneError):
            batch.connection.channel.send(frame)

    # Workers:

    def _receive(self) -> None:
        with suppress(zmq.Again):
            while True:
                identity, kind, *parts = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
                worker = self._workers.get(identity.bytes)
                try:
                    if kind.bytes == HELLO:
                        self._welcome(identity.bytes, json.loads(parts[0].bytes))
                    elif worker is not None:
                        self._hear(worker, kind.bytes, parts)
                except (FrameError, ValueError, TypeError, KeyError, IndexError) as error:
                    self._refuse(identity.bytes, f"what it sent cannot be read: {error}", "a worker")

    def _hear(self, worker: RemoteWorker, kind: bytes, parts: list[zmq.Frame]) -> None:
        if kind == FRAME:
            self._take_reply(worker, decode([zmq.Frame(kind), *parts]))
        elif kind == TAKEN:
            (number,) = NUMBER.unpack(parts[0].bytes)
            if number in worker.batches:
                worker.batches[number].taken = True
        elif kind == READY:
            worker.is_async = bool(json.loads(parts[0].bytes)["is_async"])
            worker.ready = True
            LOGGER.info("worker %s has joined", worker)
            worker.model.on_change()
            self._hand_out(worker.model)
        elif kind == LEAVE:
            worker.leaving = True
            self._end_if_idle(worker)
            worker.model.on_change()

    def _welcome(self, identity: bytes, hello: dict[str, Any]) -> None:
        who = f"worker of model {hello.get('model')!r} on {hello.get('host')} (process {hello.get('process')})"
        if hello.get("protocol") != PROTOCOL:
            self._refuse(
                identity,
                f"it speaks version {hello.get('protocol')} of the protocol (pytriton {hello.get('package')}), this "
                f"side {PROTOCOL} (pytriton {version('pytriton')}); install the same version on both",
                who,
                final=True,
            )
            return
        model = next((model for model in self._models if model.matches(hello)), None)
        if model is None:
            have = ", ".join(f"{model.name} (version {model.version})" for model in self._models)
            self._refuse(identity, f"no such model listens here; there is: {have}", who)
            return
        worker = RemoteWorker(
            identity, model, str(hello["host"]), int(hello["process"]), max(1, int(hello.get("credits", 1)))
        )
        self._workers[identity] = model.workers[identity] = worker
        self._send(worker, WELCOME, json.dumps(model.welcome).encode())

    def _refuse(self, identity: bytes, reason: str, who: str, final: bool = False) -> None:
        """Tell a worker why it cannot join; it tries again, unless that is ``final``."""
        if who not in self._refused and len(self._refused) < LOGGED_REFUSALS:
            self._refused.add(who)
            LOGGER.warning("refused a %s: %s", who, reason)
        with suppress(zmq.ZMQError):
            self._router.send_multipart([identity, REFUSED, json.dumps([reason, final]).encode()], zmq.NOBLOCK)
        worker = self._workers.get(identity)
        if worker is not None:
            self._lose(worker)

    def _take_reply(self, worker: RemoteWorker, frame: Frame) -> None:
        batch = worker.batches.get(frame.number)
        if batch is None:
            return
        batch.answered = True
        worker.untold += frame.more
        if not frame.more:
            del worker.batches[frame.number]
            worker.answered += 1
        if batch.proxy_number in batch.connection.batches:
            self._reply(batch, frame)
        self._tell_taken(worker.model, worker)
        if not frame.more:
            self._hand_out(worker.model)
            self._end_if_idle(worker)

    def _tell_taken(self, model: RemoteModel, only: RemoteWorker | None = None) -> None:
        """Tell workers how many replies of streams were taken, unless the proxy has too many already."""
        for worker in [only] if only is not None else [*model.workers.values()]:
            congested = any(batch.connection.channel.is_congested() for batch in worker.batches.values())
            if worker.untold >= TELL_TAKEN and not congested:
                told, worker.untold = worker.untold, 0
                self._send_frame(worker, Frame(RELEASE, told), told)

    def _end_if_idle(self, worker: RemoteWorker) -> None:
        if worker.leaving and not worker.batches and worker.identity in self._workers:
            LOGGER.info("worker %s has left", worker)
            self._remove(worker)
            with suppress(zmq.ZMQError):
                self._router.send_multipart([worker.identity, BYE, b"null"], zmq.NOBLOCK)

    def _remove(self, worker: RemoteWorker) -> None:
        self._workers.pop(worker.identity, None)
        worker.model.workers.pop(worker.identity, None)
        worker.model.on_change()

    def _lose(self, worker: RemoteWorker) -> None:
        """Have others answer the batches of a worker that has gone, if no callable has got them."""
        if worker.identity not in self._workers:
            return
        self._remove(worker)
        LOGGER.warning("worker %s is lost, with %d batches", worker, len(worker.batches))
        again = []
        for batch in worker.batches.values():
            batch.worker = None
            may_repeat = not batch.answered and (worker.model.options.idempotent or not batch.taken)
            if batch.proxy_number not in batch.connection.batches:
                continue
            if batch.cancelled:
                self._reply(batch, Frame(END, requests=batch.frame.requests))
            elif may_repeat:
                again.append(batch)
            else:
                self._fail(batch, f"the worker on {worker.host} was lost while it answered", "UNAVAILABLE")
                self._forget(batch)
        for batch in again:
            batch.taken, batch.arrived = False, time.monotonic()
        worker.model.waiting.extendleft(reversed(again))
        worker.batches.clear()
        self._hand_out(worker.model)

    def _dismiss(self, model: RemoteModel) -> None:
        """Tell the workers of a model that goes."""
        for worker in [*model.workers.values()]:
            with suppress(zmq.ZMQError):
                self._router.send_multipart([worker.identity, BYE, b"null"], zmq.NOBLOCK)
            self._remove(worker)

    def _keep_watch(self) -> None:
        """Now and then, look for workers that have gone, and for batches that have waited too long."""
        now = time.monotonic()
        if now < self._next_probe:
            return
        self._next_probe = now + PROBE_S
        for worker in [*self._workers.values()]:
            self._send(worker, PROBE, b"")
        for model in self._models:
            has_workers = any(worker.ready for worker in model.workers.values())
            while not has_workers and model.waiting:
                batch = model.waiting[0]
                if now - batch.arrived < model.options.worker_timeout_s:
                    break
                model.waiting.popleft()
                self._fail(batch, f"model {model.name!r} has no worker", "UNAVAILABLE")
                self._forget(batch)
