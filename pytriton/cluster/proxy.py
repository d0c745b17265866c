"""A proxy's connection to a program on another machine, over ZeroMQ.

This file runs in the server, beside those of the proxy, so it imports files that are copied there alone: see
``PROXY_FILES`` in relay.py.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import zmq
import zmq.auth

from ..wire.channel import TELL_TAKEN, PeerGoneError
from ..wire.control import BYE
from ..wire.frames import RELEASE, Frame, pack
from ..wire.tensors import Tensor
from .channel import RemoteChannel
from .messages import Parts, with_remaining_times

__all__ = ["ProxyChannel", "connect"]

CONNECT_S = 2.0  # at least, as a connection takes several round trips
LINGER_MS = 1000


class ProxyChannel(RemoteChannel):
    """A proxy's connection to the program. Methods: see :class:`pytriton.wire.channel.Channel`.

    Args:
        remote: ``ProxyRelay.description``.

    Raises:
        RuntimeError: There is no key in the file that it names.
    """

    dismissed = "the program has ended"
    refused = "the program refused the connection: check proxy_key, and the keys in its folder proxy_keys"

    def __init__(self, remote: dict[str, Any]) -> None:
        self._remote = remote
        self._taken = 0  # streamed replies that the program has not been told of
        self._ended = False
        self._own_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            super().__init__(
                self._own_context, remote["address"], remote["heartbeat_s"], self._secure, on_observe=lambda: None
            )
        except BaseException:
            self._own_context.destroy(0)
            raise

    def _secure(self, connection: zmq.Socket[bytes]) -> None:
        path, program_key = self._remote["key"], self._remote["program_key"]
        if program_key is None:
            return
        try:
            public, secret = zmq.auth.load_certificate(path)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{socket.gethostname()} has no key in {path} (proxy_key): {error}") from error
        if secret is None:
            raise RuntimeError(f"{path} (proxy_key) on {socket.gethostname()} has no secret key")
        connection.curve_publickey, connection.curve_secretkey = public, secret
        connection.curve_serverkey = program_key.encode()

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """As :meth:`Channel.send`; data of any size fit."""
        super().send(with_remaining_times(frame), tensors)

    def _send_locked(self, parts: Parts) -> None:
        self._check_open()
        self._check_monitor()  # a lost connection, which ZeroMQ would make again, has lost replies
        super()._send_locked(parts)

    def release(self, *, taken: bool = False, at_once: bool = False) -> None:
        """As :meth:`Channel.release`; there is no memory to release."""
        with self._lock:
            self._taken += taken
            if self._taken >= (1 if at_once else TELL_TAKEN):
                told, self._taken = self._taken, 0
                with suppress(PeerGoneError):  # which the thread that receives notices
                    self._send_locked([pack(Frame(RELEASE, told))])
                    self._notify_if_arrived()

    def say_goodbye(self) -> None:
        """As :meth:`Channel.say_goodbye`."""
        with self._lock, suppress(PeerGoneError):
            self._check_open()
            self._socket.setsockopt(zmq.LINGER, LINGER_MS)
            self._send_locked([BYE])

    def close(self) -> None:
        """As :meth:`Channel.close`; waits until a good-bye is sent, for a second at most."""
        if not self._ended:
            self._ended = True
            super().close()
            self._own_context.term()


def connect(remote: dict[str, Any], hello: dict[str, Any], timeout_s: float, patience_s: float = 0.0) -> ProxyChannel:
    """Connect to an instance of the program; arguments and errors as those of :func:`pytriton.wire.connect.connect`.

    Args:
        remote: ``ProxyRelay.description``.
        hello: ``model``, ``instance``, ``socket`` and ``serial``; see ``JoinedProxy`` in relay.py.
        timeout_s: How long the connection may take.
        patience_s: How long the worker may take to answer.
    """
    address, timeout_s = remote["address"], max(timeout_s, CONNECT_S)
    channel = ProxyChannel(remote)
    try:
        if not channel.wait_connected(timeout_s):
            raise PeerGoneError(
                f"{socket.gethostname()}, where the server runs, cannot reach the program with the inference callable "
                f"at {address} within {timeout_s:g} s, or they do not agree on keys"
            )
        if channel.join({"relay": remote["relay"], **hello}, max(timeout_s, patience_s)) is None:
            raise PeerGoneError(f"the program with the inference callable at {address} does not answer")
        return channel
    except BaseException:
        channel.close()
        raise
