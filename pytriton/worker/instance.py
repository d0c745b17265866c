"""One model instance: waits for its proxy, and has an engine answer what it sends."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pytriton import forks
from pytriton.proxy.channel import PeerGoneError, accept
from pytriton.proxy.peer import stranger
from pytriton.proxy.tensors import FrameError
from pytriton.worker.channel import Channel, LocalChannel, Offer
from pytriton.worker.context import Binding, current_binding
from pytriton.worker.engine import Engine
from pytriton.worker.listener import Listener

LOGGER = logging.getLogger("pytriton.worker")

GREETING_TIMEOUT_S = 5.0
RETRY_S = 1.0
POLL_S = 0.01


class Instance:
    """Listens on a socket for the proxy and serves it with one callable.

    Each connection has a thread; those of proxies in this process only if their own threads cannot answer. There is one
    connection, except while the server replaces a proxy by another one: it ends the old one when the new one is ready.

    Args:
        path: Of the socket to listen on.
        binding: The callable, its model configuration and context.
        engine: Answers frames.
        on_disconnect: Called, on the connection's thread, when a proxy has gone.
        on_connect: Called when one has come.
        inherited: A socket that listens at ``path`` already, which another process goes on with.
        offer: Has proxies in this process connect without the socket.

    Attributes:
        was_dismissed: Whether the server has ended the last proxy that went: it did not die.
    """

    def __init__(
        self,
        path: str,
        binding: Binding,
        engine: Engine,
        on_disconnect: Callable[[], None],
        on_connect: Callable[[], None] = lambda: None,
        inherited: socket.socket | None = None,
        offer: Offer | None = None,
    ) -> None:
        self.was_dismissed = False
        self._binding = binding
        self._engine = engine
        self._on_disconnect = on_disconnect
        self._on_connect = on_connect
        self._name = f"pytriton-{binding.model_config.model_name}-{os.path.basename(path)}"
        self._state = threading.Condition()
        self._connections: set[socket.socket | LocalChannel] = set()
        self._closed = self._draining = False
        self._process = os.getpid()
        self._listener = Listener(path, inherited)
        forks.register(self)
        self._thread = threading.Thread(target=self._listen, name=self._name, daemon=True)
        self._thread.start()
        self._withdraw = offer(path, self._meet) if offer else lambda: None

    def after_fork(self) -> None:
        """In a forked child, drop the connections: if a callable forks, only the parent answers its requests.

        A child that lives longer would also keep the proxy from seeing the end of the parent.
        """
        self._state, self._closed = threading.Condition(), True
        self._listener.abandon()
        for connection in [*self._connections]:
            if isinstance(connection, socket.socket):
                forks.abandon(connection.fileno())
            else:
                connection.abandon()

    def is_alive(self) -> bool:
        """Whether the instance can serve."""
        return self._thread.is_alive() and not self._closed

    def is_connected(self) -> bool:
        """Whether a proxy is connected."""
        return bool(self._connections)

    def rebind(self, binding: Binding) -> None:
        """Have the threads of later connections serve another callable, as the engine does."""
        self._binding = binding

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return self._engine.quiet_s()

    def wait_disconnected(self, timeout_s: float | None) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or :meth:`close`. False at the timeout, if
        there is one.
        """
        with self._state:
            self._state.wait_for(lambda: self._closed or not self._connections, timeout_s)
            return not self._connections

    def wait_quiet(self) -> None:
        """Wait for a moment in which no batch is being answered."""
        while not self.quiet_s():
            time.sleep(POLL_S)

    def wait_ended(self) -> None:
        """After :meth:`close`, wait until the callable has returned and nothing of the instance runs."""
        self._thread.join()

    def close(self) -> None:
        """Stop listening and end the connection; its thread ends when the callable has returned."""
        self._withdraw()
        with self._state:
            self._closed = True
            for connection in [*self._connections]:
                _shut_down(connection)
            self._state.notify_all()
        self._listener.stop()

    def drain(self) -> None:
        """Take no batch any more, and answer those that have come: the proxy finds out before it has sent the next."""
        self._listener.stop()
        self._engine.drain()
        with self._state:
            self._draining = True
            for connection in [*self._connections]:
                _shut_down(connection, socket.SHUT_RD)

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:  # closed, or out of descriptors for a while
                if not self._closed:
                    LOGGER.warning("model %s: no proxy can connect: %s", self._name, error)
                    time.sleep(RETRY_S)
                continue
            if connection is None:
                break
            self._welcome(connection)
        self._listener.close()
        with self._state:
            self._state.wait_for(lambda: not self._connections)
        self._engine.close()

    def _welcome(self, connection: socket.socket) -> None:
        if found := stranger(connection):
            LOGGER.warning("model %s: refused %s: only this user and root may connect", self._name, found)
            connection.close()
            return
        with self._state:
            self._connections.add(connection)
            if self._closed or self._draining:
                _shut_down(connection)
        self._on_connect()
        threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()

    def _meet(self, channel: LocalChannel) -> bool:
        """Serve a proxy in this process; False if it comes too late."""
        with self._state:
            if self._closed or self._draining:
                return False
            self._connections.add(channel)
        self._on_connect()
        if self._engine.answer is not None:
            channel.attend(self._engine.answer, partial(self._part, channel))
        else:
            threading.Thread(target=self._serve, args=(channel,), name=self._name, daemon=True).start()
        return True

    def _serve(self, connection: socket.socket | LocalChannel) -> None:
        current_binding.set(self._binding)
        try:
            self._converse(connection)
        except PeerGoneError as error:
            LOGGER.debug("a proxy has gone: %s", error)
        except FrameError:
            LOGGER.exception("a proxy sent a bad frame; its connection is closed")
        finally:
            self._forget(connection)

    def _converse(self, connection: socket.socket | LocalChannel) -> None:
        channel: Channel
        if isinstance(connection, socket.socket):
            _, channel = accept(connection, GREETING_TIMEOUT_S)
        else:
            channel = connection
        try:
            self._engine.serve(channel)
        finally:
            self._end(channel)

    def _end(self, channel: Channel) -> None:
        self.was_dismissed = channel.ended_well
        channel.close()

    def _forget(self, connection: socket.socket | LocalChannel) -> None:
        if self._is_inherited():
            os._exit(0)  # a child that the callable forked has come back from there
        with self._state:
            self._connections.remove(connection)
            self._state.notify_all()
        connection.close()
        self._on_disconnect()

    def _part(self, channel: LocalChannel) -> None:
        """The end of a connection without a thread."""
        if not self._is_inherited():
            self._end(channel)
        self._forget(channel)

    def _is_inherited(self) -> bool:
        return self._process != os.getpid()


def _shut_down(connection: socket.socket | LocalChannel, how: int = socket.SHUT_RDWR) -> None:
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(how)
    else:
        connection.shutdown()
