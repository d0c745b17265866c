"""The server's side of remote workers: one thread for all models that listen on one address."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from pytriton import forks
from pytriton.cluster.batches import Connection, JoinedWorker, RemoteModel
from pytriton.cluster.dispatcher import Dispatcher
from pytriton.cluster.members import Members
from pytriton.cluster.router import Router
from pytriton.exceptions import PyTritonWorkerError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.tensors import FrameError
from pytriton.worker.interfaces import Channel

__all__ = ["Hub"]

LOGGER = logging.getLogger("pytriton.workers")

PROBE_S = 0.2
MESSAGES = 32  # of workers, before proxies are looked at again

_hubs: dict[str, Hub] = {}
_hubs_lock = threading.Lock()


class Hub:
    """Listens on one address for the workers of any number of models, until the last one has left it.

    Args:
        model: The first one; its options say where to listen.

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
                hub = cls(model)
                _hubs[hub.address] = hub
            elif hub._keys != (options.key, options.worker_keys):
                raise PyTritonWorkerError(f"another model listens on {options.listen} with other keys")
            hub._members.models.append(model)
            return hub

    def __init__(self, model: RemoteModel) -> None:
        self._keys = model.options.key, model.options.worker_keys
        options = model.options
        self._router = Router(options.listen, options.heartbeat_s, options.key, options.worker_keys)
        self.address = self._router.address
        self._dispatcher = Dispatcher(self._router)
        self._members = Members(self._router, self._dispatcher)
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopped = self._has_more = False
        self._next_probe = 0.0
        self._waking = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._poll.register(self._router.fileno(), select.EPOLLIN)
        self._poll.register(self._waking, select.EPOLLIN)
        forks.register(self)
        self._thread = threading.Thread(target=self._run, name=f"pytriton-{self.address}", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """In a forked child there is no thread, and pyzmq leaves the parent's sockets alone."""
        _hubs.clear()

    # From other threads:

    def leave(self, model: RemoteModel) -> None:
        """Forget a model, after telling its workers."""
        with suppress(PeerGoneError):
            self._on_thread(lambda: self._members.dismiss(model)).result()
        with _hubs_lock:
            self._members.models.remove(model)
            if self._members.models:
                return
            _hubs.pop(self.address, None)
        with suppress(PeerGoneError):
            self._on_thread(self._stop).result()
        self._thread.join()
        os.close(self._waking)

    def serve(self, model: RemoteModel, channel: Channel) -> None:
        """Have the batches of a proxy answered until it has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        connection = Connection(channel, model)
        self._on_thread(lambda: self._attach(connection)).result()
        try:
            connection.ended.result()
        finally:
            del connection.ended  # its error has a traceback that has the connection, and with it mapped memory

    def observe(self, model: RemoteModel) -> None:
        """As :meth:`Members.observe`."""
        self._on_thread(lambda: self._members.observe(model))

    def workers(self, model: RemoteModel) -> list[JoinedWorker]:
        """Those that are ready to answer batches of a model."""
        return [worker for worker in [*model.workers.values()] if worker.ready and not worker.leaving]

    def _on_thread(self, call: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._calls.append((call, done))
        if self._thread.is_alive():
            os.eventfd_write(self._waking, 1)
        else:
            self._refuse_calls()
        return done

    def _refuse_calls(self) -> None:
        while self._calls:
            with suppress(IndexError):
                self._calls.popleft()[1].set_exception(PeerGoneError("remote workers are not listened to any more"))

    # On the hub's thread:

    def _stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._turn()
        except BaseException:
            LOGGER.exception("the connection to remote workers has failed; their models are not served any more")
        finally:
            for connection in [*self._connections.values()]:
                self._detach(connection, PeerGoneError("remote workers are not listened to any more"))
            self._poll.close()
            self._router.close()
            self._refuse_calls()

    def _turn(self) -> None:
        """Wait for proxies, workers and calls, and serve those that have come."""
        arrived = self._has_more or self._router.has_arrived()
        for descriptor, events in self._poll.poll(0 if arrived else PROBE_S):
            connection = self._connections.get(descriptor)
            if connection is not None:
                self._serve(connection, events)
            elif descriptor == self._waking:
                self._make_calls()
            else:
                arrived = True
        if arrived:
            self._has_more = self._hear()
        for connection in [*self._dispatcher.full]:
            self._poll.modify(connection.descriptor, select.EPOLLIN | select.EPOLLOUT)
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + PROBE_S
            self._members.probe()
            for model in self._members.models:
                self._dispatcher.fail_late(model, now)
        self._members.lose_gone()

    def _hear(self) -> bool:
        """Act on what workers have sent; whether there may be more."""
        for _ in range(MESSAGES):
            message = self._router.receive()
            if message is None:
                return False
            self._members.hear(message)
        return True

    def _make_calls(self) -> None:
        os.eventfd_read(self._waking)
        while self._calls:
            call, done = self._calls.popleft()
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

    def _attach(self, connection: Connection) -> None:
        self._connections[connection.descriptor] = connection
        connection.model.connections.append(connection)
        self._poll.register(connection.descriptor, select.EPOLLIN)
        self._dispatcher.limit(connection.model)
        self._serve(connection, select.EPOLLIN)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                self._dispatcher.flush(connection)
                if not connection.outbox:
                    self._poll.modify(connection.descriptor, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                self._dispatcher.read(connection)
        except (PeerGoneError, FrameError) as error:
            self._detach(connection, error)

    def _detach(self, connection: Connection, error: BaseException) -> None:
        """Forget a proxy that has gone, and cancel its batches."""
        del self._connections[connection.descriptor]
        self._poll.unregister(connection.descriptor)
        connection.model.connections.remove(connection)
        self._dispatcher.limit(connection.model)
        self._dispatcher.drop(connection)
        connection.ended.set_exception(error)
