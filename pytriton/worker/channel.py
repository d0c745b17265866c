"""What engines need of a connection to a proxy, wherever that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pytriton.proxy.frames import Frame
from pytriton.proxy.tensors import Tensor

__all__ = ["Answer", "Channel", "LocalChannel", "Meet", "Offer"]


class Channel(Protocol):
    """As :class:`pytriton.proxy.channel.Channel`, which is one over a socket.

    Attributes:
        ended_well: Whether the proxy said good-bye.
    """

    ended_well: bool

    def send(self, frame: Frame, tensors: Sequence[Tensor] = ()) -> None:
        """Send a frame.

        Raises:
            PeerGoneError: The proxy is gone.
            ArenaFullError: The tensors do not fit; nothing was sent.
        """

    def send_message(self, message: bytes) -> None:
        """Send a frame that is a message already; raises as :meth:`send`."""

    def receive(self, answer: Callable[[bytearray], bool] | None = None) -> Frame:
        """Wait for the next frame.

        Args:
            answer: May be given messages before they become frames; True: it has dealt with one.

        Raises:
            PeerGoneError: The proxy is gone.
            FrameError: What arrived is not a frame.
        """

    def receive_ready(self) -> Frame | None:
        """The next frame if it is there, else None; as :meth:`receive` otherwise."""

    def is_congested(self) -> bool:
        """Whether streams should wait for the proxy to take some replies."""

    def fileno(self) -> int:
        """A descriptor, readable when a frame is there."""

    def shutdown(self) -> None:
        """Make :meth:`receive` raise PeerGoneError."""

    def close(self) -> None:
        """End the connection."""


class LocalChannel(Channel, Protocol):
    """One to a proxy in this process, whose threads can answer batches."""

    def attend(self, answer: Answer, part: Callable[[], None]) -> None:
        """Have batches answered on the threads that bring them, instead of being received.

        Args:
            answer: Called with the message of each batch, and may return the reply.
            part: Called at the end, once no batch is being answered.
        """

    def abandon(self) -> None:
        """In a forked child, call ``part`` when the callable that forked it returns."""

    def frame_of(self, message: bytearray) -> Frame:
        """The frame of a message.

        Raises:
            FrameError: It is none.
        """


Answer = Callable[[LocalChannel, bytearray], bytes]
"""Answers a batch; returns the message of the reply, or nothing if that was sent."""

Meet = Callable[[LocalChannel], bool]
"""Takes a connection; False refuses it."""

Offer = Callable[[str, Meet], Callable[[], None]]
"""Has proxies in this process connect to a worker by a path; returns what withdraws that."""
