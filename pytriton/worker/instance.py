"""One model instance: waits for its proxy on a socket, and answers the batches with an executor."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.threads import keep_running
from pytriton.wire import channel as channels
from pytriton.wire.channel import ChannelState, HandOverError, PeerGoneError
from pytriton.wire.connect import accept, go_on, short_path, unexpected_peer
from pytriton.wire.tensors import FrameError
from pytriton.worker.concurrent import ConcurrentExecutor
from pytriton.worker.context import Binding, current_binding
from pytriton.worker.inference import Inference
from pytriton.worker.interfaces import Channel, Executor, ListenLocally, LocalChannel
from pytriton.worker.results import is_async
from pytriton.worker.serial import SerialExecutor
from pytriton.worker.streaming import StreamExecutor

__all__ = ["Instance", "Listener", "listening", "make_executor"]

LOGGER = get_logger("pytriton.worker")

GREETING_TIMEOUT_S = 5.0
RETRY_S = 1.0
POLL_S = 0.01
LOOK_S = 0.5  # between two looks of a connection without batches whether it is handed over

HandOver = Callable[[Sequence[int], ChannelState], None]
"""Sends another process what :meth:`pytriton.wire.channel.Channel.handed_over` returns."""


class Instance:
    """Listens on a socket for the proxy and serves it with one callable.

    Each connection has a thread; those of proxies in this process only if their own threads cannot answer. There is one
    connection, except while the server replaces a proxy by another one: it ends the old one when the new one is ready.

    Args:
        path: Of the socket to listen on.
        binding: The callable, its model configuration and context.
        on_disconnect: Called on the connection's thread when a proxy has disconnected.
        on_connect: Called when a proxy has connected.
        inherited: A socket that already listens at ``path``, and that another process uses later.
        listen_locally: Connects proxies of this process without the socket.

    Attributes:
        was_dismissed: Whether the server closed the last proxy that disconnected; False if that proxy died.
    """

    def __init__(
        self,
        path: str,
        binding: Binding,
        executor: Executor,
        on_disconnect: Callable[[], None],
        on_connect: Callable[[], None] = lambda: None,
        inherited: socket.socket | None = None,
        listen_locally: ListenLocally | None = None,
    ) -> None:
        self.was_dismissed = False
        self._binding = binding
        self._executor = executor
        self._on_disconnect = on_disconnect
        self._on_connect = on_connect
        self._name = f"pytriton-{binding.model_config.model_name}-{os.path.basename(path)}"
        self._state = threading.Condition()
        self._connections: set[socket.socket | LocalChannel] = set()
        self._channels: set[channels.Channel] = set()  # of those that are sockets, and have said who they are
        self._closed = self._draining = False
        self._hand_over: HandOver | None = None
        self._process = os.getpid()
        self._is_replaced = inherited is not None
        self._listener = Listener(path, inherited)
        forks.register(self)
        self._thread = keep_running(self._listen, self._name)
        self._stop_local = listen_locally(path, self._accept_local) if listen_locally else lambda: None

    def after_fork(self) -> None:
        """In a forked child, drop the connections: if a callable forks, only the parent answers its requests.

        Otherwise a child that outlives the parent would hide the parent's end from the proxy.
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
        """Serve another callable on later connections, as the executor does."""
        self._binding = binding

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return self._executor.quiet_s()

    def batches(self) -> int:
        """How many batches are being answered."""
        return self._executor.batches()

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
        """Stop listening and shut the connection down; its thread ends when the callable has returned."""
        self._stop_local()
        with self._state:
            self._closed = True
            for connection in [*self._connections]:
                _shut_down(connection)
            self._state.notify_all()
        self._listener.stop()

    def drain(self) -> None:
        """Receive no further batch, and answer those that have arrived; the proxy notices before it sends the next."""
        self._listener.stop()
        self._executor.drain()
        with self._state:
            self._draining = True
            for connection in [*self._connections]:
                _shut_down(connection, socket.SHUT_RD)

    def hand_over(self, give: HandOver) -> None:
        """Give the connections to another process, each between two batches, and accept no more."""
        self._listener.stop()
        with self._state:
            self._hand_over = give
            for channel in self._channels:
                channel.hand_over()

    def go_on(self, descriptors: Sequence[int], state: ChannelState) -> None:
        """Serve a connection that another process has handed over."""
        file, arena, peer = descriptors
        connection = socket.socket(fileno=file)
        channel = go_on(connection, arena, peer, state)
        with self._state:
            self._connections.add(connection)
            if self._closed or self._draining:
                _shut_down(connection)
        self._on_connect()
        self._start_serving(connection, channel)

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:  # closed, or out of descriptors for a while
                if not self._closed:
                    LOGGER.warning("model %s: no proxy can connect, trying again: %s", self._name, error)
                    time.sleep(RETRY_S)
                continue
            if connection is None:
                break
            self._accept(connection)
        self._listener.close()
        with self._state:
            self._state.wait_for(lambda: not self._connections)
        try:
            self._executor.close()
        except BaseException:
            LOGGER.exception("model %s: what the callable used could not be closed", self._name)

    def _accept(self, connection: socket.socket) -> None:
        if found := unexpected_peer(connection):
            LOGGER.warning("model %s: refused %s: only this user and root may connect", self._name, found)
            connection.close()
            return
        with self._state:
            self._connections.add(connection)
            if self._closed or self._draining:
                _shut_down(connection)
        self._on_connect()
        self._start_serving(connection)

    def _start_serving(self, connection: socket.socket | LocalChannel, channel: channels.Channel | None = None) -> None:
        """Serve a connection; ``channel`` is given if its other end has been greeted."""
        try:
            threading.Thread(target=self._serve, args=(connection, channel), name=self._name, daemon=True).start()
        except RuntimeError as error:  # a limit to threads; the proxy connects again
            LOGGER.error("model %s: a proxy cannot be served: %s", self._name, error)
            self._forget(connection)

    def _accept_local(self, channel: LocalChannel) -> bool:
        """Serve a proxy in this process; False if the instance is closing."""
        with self._state:
            if self._closed or self._draining:
                return False
            self._connections.add(channel)
        self._on_connect()
        if self._executor.answer is not None:
            channel.answer_with(self._executor.answer, partial(self._local_ended, channel))
        else:
            self._start_serving(channel)
        return True

    def _serve(self, connection: socket.socket | LocalChannel, channel: channels.Channel | None) -> None:
        current_binding.set(self._binding)
        try:
            if isinstance(connection, socket.socket):
                self._converse(channel or accept(connection, GREETING_TIMEOUT_S)[1])
            else:
                self._answer(connection)
        except PeerGoneError as error:
            LOGGER.debug("a proxy has gone: %s", error)
        except FrameError:
            LOGGER.exception("a proxy sent a bad frame; its connection is closed")
        except BaseException:
            LOGGER.exception("model %s: a connection to a proxy failed; the proxy connects again", self._name)
        finally:
            self._forget(connection)

    def _converse(self, channel: channels.Channel) -> None:
        with self._state:
            self._channels.add(channel)
            if self._hand_over is not None:
                channel.hand_over()
        if self._is_replaced:
            channel.look_every(LOOK_S)
        try:
            self._answer(channel)
        finally:
            with self._state:
                self._channels.remove(channel)

    def _answer(self, channel: Channel) -> None:
        try:
            self._executor.serve(channel)
        except HandOverError:
            if self._hand_over is not None and isinstance(channel, channels.Channel):
                self._hand_over(*channel.handed_over())
            raise
        finally:
            self._end(channel)

    def _end(self, channel: Channel) -> None:
        self.was_dismissed = channel.ended_well
        channel.close()

    def _forget(self, connection: socket.socket | LocalChannel) -> None:
        if self._is_inherited():
            os._exit(0)  # in a child that the callable forked, and that returned from the callable
        with self._state:
            self._connections.remove(connection)
            self._state.notify_all()
        connection.close()
        self._on_disconnect()

    def _local_ended(self, channel: LocalChannel) -> None:
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


def listening(path: str) -> socket.socket:
    """A socket that listens at a path, which may exceed the 107 bytes of an address."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with short_path(path) as address:
            listener.bind(address)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


class Listener:
    """Accepts connections until :meth:`stop`.

    Args:
        inherited: A socket of the parent process that already listens there. A connection after the stop waits for
            the next process that inherits the socket.
    """

    def __init__(self, path: str, inherited: socket.socket | None = None) -> None:
        self._path = path
        self._is_own = inherited is None
        self._socket = listening(path) if inherited is None else inherited
        self._stopped, self._stop = socket.socketpair()

    def accept(self) -> socket.socket | None:
        """Wait for a connection; None after the stop.

        Raises:
            OSError: This process is out of descriptors.
        """
        poll = select.poll()
        poll.register(self._stopped, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        if any(descriptor == self._stopped.fileno() for descriptor, _ in poll.poll()):
            return None
        return self._socket.accept()[0]

    def stop(self) -> None:
        """Accept no more connections. Thread-safe; may be called several times."""
        self._stop.close()  # which wakes the other end
        if self._is_own:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                os.unlink(self._path)

    def abandon(self) -> None:
        """In a forked child, drop the sockets."""
        forks.abandon(self._socket.fileno(), self._stopped.fileno(), self._stop.fileno())

    def close(self) -> None:
        """Close the descriptors. Call it on the accepting thread, after :meth:`stop`."""
        self._socket.close()
        self._stopped.close()


def make_executor(function: Any, inference: Inference, several: bool, name: str) -> Executor:
    """The executor for one model instance, chosen by the form of its callable and by its model.

    Args:
        several: Whether the proxy sends batches before earlier ones are answered; required for async callables.
        name: Of the instance, for its thread.
    """
    if is_async(function):
        return ConcurrentExecutor(inference, name)
    return StreamExecutor(inference) if several else SerialExecutor(inference)
