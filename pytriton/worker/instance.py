"""One model instance: a thread that waits for its proxy, then answers batch after batch on the spot."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pytriton.proxy.arena import ArenaFullError
from pytriton.proxy.channel import Channel, PeerGoneError, accept, short_path
from pytriton.proxy.frames import FrameError
from pytriton.worker.context import Binding, current_binding
from pytriton.worker.inference import Inference

LOGGER = logging.getLogger("pytriton.worker")

GREETING_TIMEOUT_S = 5.0


class Instance:
    """Listens on a socket for the proxy and serves it with one callable.

    Args:
        path: Of the socket to listen on.
        binding: The callable, its model configuration and context.
        inference: Answers frames.
        on_disconnect: Called, on the instance's thread, when its proxy has gone.
    """

    def __init__(self, path: str, binding: Binding, inference: Inference, on_disconnect: Callable[[], None]) -> None:
        self._path = path
        self._binding = binding
        self._inference = inference
        self._on_disconnect = on_disconnect
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._closed = False
        self._disconnected = threading.Event()
        self._disconnected.set()
        self._busy = False
        self._last_batch = float("-inf")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with short_path(path) as address:
            self._listener.bind(address)
        self._listener.listen()
        name = f"pytriton-{binding.model_config.model_name}-{os.path.basename(path)}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the instance can serve."""
        return self._thread.is_alive() and not self._closed

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._busy else time.monotonic() - self._last_batch

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected: then no batch is in flight. False at the timeout."""
        return self._disconnected.wait(timeout_s)

    def is_connected(self) -> bool:
        """Whether a proxy is connected."""
        return self._channel is not None

    def close(self) -> None:
        """Stop listening and end the connection; the thread ends when its callable has returned."""
        with self._lock:
            self._closed = True
            if self._channel is not None:
                self._channel.shutdown()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            os.unlink(self._path)

    def _run(self) -> None:
        current_binding.set(self._binding)
        try:
            while not self._closed:
                channel = self._accept()
                if channel is not None:
                    self._serve(channel)
        finally:
            self._listener.close()
            self._inference.close()

    def _accept(self) -> Channel | None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None  # closed
        try:
            _, channel = accept(connection, GREETING_TIMEOUT_S)
        except PeerGoneError as error:
            LOGGER.debug("a proxy connected and left: %s", error)
            connection.close()
            return None
        with self._lock:
            if self._closed:
                channel.close()
                return None
            self._channel = channel
            self._disconnected.clear()
        return channel

    def _serve(self, channel: Channel) -> None:
        try:
            while True:
                self._step(channel)
        except PeerGoneError:
            pass
        except FrameError:
            LOGGER.exception("a proxy sent a bad frame; its connection is closed")
        finally:
            with self._lock:
                self._channel = None
            self._busy = False
            channel.close()
            self._disconnected.set()
            self._on_disconnect()

    def _step(self, channel: Channel) -> None:
        """Answer one batch. Nothing of it may stay referenced here while the next one is awaited."""
        frame = channel.receive()
        self._busy = True
        reply, tensors = self._inference.answer(frame)
        try:
            channel.send(reply, tensors)
        except (ArenaFullError, FrameError) as error:
            channel.send(*self._inference.error(frame, error))
        self._last_batch = time.monotonic()
        self._busy = False
