"""A connection to a worker, which may die and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .channel import Channel, PeerGoneError
from .frames import Frame
from .tensors import Tensor

CONNECT_TIMEOUT_S = 10.0
RECONNECT_TIMEOUT_S = 0.05
PATIENCE_S = 60.0  # for a worker process that starts again

Connect = Callable[[float, float], Any]
"""Makes a Channel, or what has its methods, within the two times that :func:`pytriton.wire.connect.connect` gets."""


class WorkerConnection:
    """A channel that is renewed when the worker has gone. For one sending thread.

    Args:
        connect: Makes a channel.

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
            tensors: The batch's.
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
