"""The socket on which a model instance waits for its proxy."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

from pytriton import forks
from pytriton.proxy.channel import short_path

__all__ = ["Listener", "listening"]


def listening(path: str) -> socket.socket:
    """A socket that listens at a path, which may be longer than the 107 bytes of an address."""
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
    """Accepts connections until it is told to stop.

    Args:
        path: To listen at.
        inherited: A socket that listens there already, in place of one of our own. It is the parent's: what connects
            after the stop waits for the process that inherits it next.
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
        """Accept nothing any more. From any thread, any number of times."""
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
        """Give the descriptors back. By the one thread that accepts, after the stop."""
        self._socket.close()
        self._stopped.close()
