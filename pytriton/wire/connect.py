"""How a proxy and a worker find each other: connecting, checking the other side, greeting, and connecting again."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .arena import Arena
from .channel import Channel, ChannelState, PeerGoneError
from .frames import Frame
from .tensors import Tensor

PROTOCOL = 5
MAX_GREETING_BYTES = 4096
RETRY_S = 0.01
DESCRIPTOR = struct.Struct("i")
CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
ROOT = 0


class WrongUserError(PeerGoneError):
    """The other side is a process of another user."""


def connect(path: str, hello: dict[str, Any], timeout_s: float, patience_s: float = 0.0) -> Channel:
    """Connect to the worker that listens at ``path``, waiting for it if need be.

    Args:
        path: Of the socket; may be longer than the 107 bytes that a socket address holds.
        timeout_s: How long the worker may take to listen and answer.
        patience_s: How long it may take to answer if somebody listens: the socket of a worker process that starts again
            is kept open meanwhile.

    Raises:
        PeerGoneError: Nobody answered, or the worker refused; WrongUserError if it is not of the folder's owner.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(max(deadline - time.monotonic(), patience_s, RETRY_S))
        try:
            with short_path(path) as address:
                connection.connect(address)
            # A server that runs as root may serve other users, whose folders nobody else can put sockets into.
            if found := unexpected_peer(connection, os.stat(os.path.dirname(path)).st_uid):
                raise WrongUserError(f"{path} is served by {found}; that has to be a process of the folder's owner")
            return _greet(connection, hello)[1]
        except OSError as error:
            connection.close()
            if isinstance(error, WrongUserError):
                raise
            if time.monotonic() > deadline:
                raise PeerGoneError(f"the process with the inference callable does not answer: {error}") from error
            time.sleep(RETRY_S)


def accept(connection: socket.socket, timeout_s: float) -> tuple[dict[str, Any], Channel]:
    """Answer a proxy that has just connected; returns what it told and the channel.

    Raises:
        PeerGoneError: It left, did not answer in time, or speaks another protocol.
    """
    connection.settimeout(timeout_s)
    try:
        return _greet(connection, {})
    except OSError as error:
        raise PeerGoneError(str(error)) from error


def go_on(connection: socket.socket, arena: int, peer: int, state: ChannelState) -> Channel:
    """The channel of a connection that another process of this side had.

    The arguments are what :meth:`Channel.handed_over` returns; the channel closes the descriptors.
    """
    return Channel(connection, Arena(fd=arena, regions=state.regions), peer, state)


def _greet(connection: socket.socket, hello: dict[str, Any]) -> tuple[dict[str, Any], Channel]:
    """Swap greetings and arenas; both sides do the same."""
    arena = Arena()
    try:
        socket.send_fds(connection, [json.dumps({"protocol": PROTOCOL, **hello}).encode()], [arena.fd])
        told, peer = _greeting(connection)
        connection.settimeout(None)
        try:
            return told, Channel(connection, arena, peer)
        except BaseException as error:
            os.close(peer)
            if isinstance(error, ValueError):  # it is empty
                raise PeerGoneError(f"the other side has no memory to share: {error}") from error
            raise
    except BaseException:
        arena.close()
        raise


def _greeting(connection: socket.socket) -> tuple[dict[str, Any], int]:
    # Not socket.recv_fds(): what is started meanwhile would inherit the descriptor.
    space = socket.CMSG_LEN(DESCRIPTOR.size)
    message, ancillary, _, _ = connection.recvmsg(MAX_GREETING_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _, kind, data in ancillary if kind == socket.SCM_RIGHTS for (fd,) in DESCRIPTOR.iter_unpack(data)]
    try:
        if not message:
            raise PeerGoneError("the connection was closed")
        told = json.loads(message)
        if not isinstance(told, dict) or told.get("protocol") != PROTOCOL or len(fds) != 1:
            raise PeerGoneError(f"the other side does not speak protocol {PROTOCOL}: {message!r}")
        return told, fds.pop()
    except ValueError as error:
        raise PeerGoneError(f"the other side sent no greeting: {error}") from error
    finally:
        for fd in fds:
            os.close(fd)


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """An address for a socket whose path may be too long for one: through the descriptor of its folder."""
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def unexpected_peer(connection: socket.socket, *expected: int) -> str | None:
    """The process at the other end, if it is neither of this user nor of root; None if all is well.

    The kernel names the process that connected or, on that side, the one that listens, so it cannot be forged.

    Args:
        expected: Ids of further users who may be there.
    """
    size = CREDENTIALS.size
    pid, user, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return None if user in (ROOT, os.geteuid(), *expected) else f"process {pid} of user {user}"


CONNECT_TIMEOUT_S = 10.0
RECONNECT_TIMEOUT_S = 0.05
PATIENCE_S = 60.0  # for a worker process that starts again

Connect = Callable[[float, float], Any]
"""Makes a Channel, or what has its methods, within the two times that :func:`pytriton.wire.connect.connect` gets."""


class WorkerConnection:
    """A channel that is renewed when the worker has gone. For one sending thread.

    Attributes:
        channel: The newest.
        has_reader: Whether somebody reads each channel to its end and closes it: a worker that is about to end takes
            nothing any more, and may still answer what it has.

    Raises:
        PeerGoneError: No worker answered in time.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._number = 0
        self.has_reader = False
        self.channel: Channel = connect(CONNECT_TIMEOUT_S, 0.0)

    def number(self, frame: Frame) -> None:
        """Give a batch the next number."""
        self._number = frame.number = (self._number + 1) & 0xFFFFFFFF

    def send(
        self, frame: Frame, tensors: Sequence[Tensor], before: Callable[[Channel], None] = lambda _: None
    ) -> Channel:
        """Send a batch, over a new connection if the old one has ended.

        Args:
            frame: Numbered.
            before: Gets each channel before the batch is sent over it: replies may come before this returns.

        Returns:
            The channel that its reply comes from.

        Raises:
            PeerGoneError: The worker is gone.
            ArenaFullError: The tensors do not fit.
        """
        before(self.channel)
        try:
            self.channel.send(frame, tensors)
        except PeerGoneError:
            self.send_anew(frame, tensors, before)
        return self.channel

    def send_anew(
        self, frame: Frame, tensors: Sequence[Tensor], before: Callable[[Channel], None] = lambda _: None
    ) -> Channel:
        """Send over a new connection a batch that nobody has read; as :meth:`send`."""
        if not self.has_reader:
            self.channel.close()
        self.channel = self._connect(RECONNECT_TIMEOUT_S, PATIENCE_S)
        before(self.channel)
        self.channel.send(frame, tensors)
        return self.channel
