"""Interfaces between the parts of a worker: channels, executors, and observers of batches."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Protocol

from pytriton.proxy.types import Request
from pytriton.wire.frames import Frame
from pytriton.wire.tensors import Tensor

__all__ = [
    "Accept",
    "Activity",
    "Answer",
    "AsyncReplies",
    "BatchObserver",
    "Channel",
    "Executor",
    "ListenLocally",
    "LocalChannel",
    "Replies",
    "Reply",
]


class Channel(Protocol):
    """A connection to a proxy: a :class:`pytriton.wire.channel.Channel` over a socket, or a LocalChannel.

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

    def receive(self, between_batches: bool = False) -> Frame:
        """Wait for the next frame.

        Args:
            between_batches: Whether all batches are answered, so that the connection may be handed over.

        Raises:
            PeerGoneError: The proxy is gone; HandOverError if another process goes on with the connection.
            FrameError: What arrived is not a frame.
        """

    def receive_ready(self) -> Frame | None:
        """The next frame if it has arrived, else None; raises as :meth:`receive`."""

    def is_handed_over(self) -> bool:
        """Whether another process is to go on with the connection."""

    def is_congested(self) -> bool:
        """Whether streams should wait for the proxy to take some replies."""

    def fileno(self) -> int:
        """A descriptor that is readable when a frame has arrived."""

    def shutdown(self) -> None:
        """Make :meth:`receive` raise PeerGoneError."""

    def close(self) -> None:
        """End the connection."""


class LocalChannel(Channel, Protocol):
    """A connection to a proxy in this process; the proxy's threads can answer batches."""

    def answer_with(self, answer: Answer, ended: Callable[[], None]) -> None:
        """Answer batches on the threads that bring them, instead of receiving them.

        Args:
            ended: Called at the end, once no batch is being answered.
        """

    def abandon(self) -> None:
        """In a forked child, call ``ended`` when the callable that forked returns."""


Reply = tuple[Frame, list[Tensor]]
"""A frame to send, and its tensors."""

Replies = Generator[Reply, None, None]
AsyncReplies = AsyncGenerator[Reply, None]

Answer = Callable[[LocalChannel, Frame], Reply]
"""Answers a batch."""

Accept = Callable[[LocalChannel], bool]
"""Takes a connection; False refuses it."""

ListenLocally = Callable[[str, Accept], Callable[[], None]]
"""Connects proxies in this process to a worker by a path; returns the function that stops it."""


class Executor(Protocol):
    """Answers batches with a callable."""

    @property
    def answer(self) -> Answer | None:
        """Answers one batch on the calling thread; None if only :meth:`serve` can."""

    def serve(self, channel: Channel) -> None:
        """Answer batch after batch, until the proxy has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""

    def batches(self) -> int:
        """How many batches are being answered."""

    def drain(self) -> None:
        """Answer all batches that have arrived, when the proxy can send no more, instead of cancelling them."""

    def close(self) -> None:
        """Release what the callable used. Call it after the last :meth:`serve`."""


class BatchObserver:
    """Observes one batch, from its arrival at the worker to its last reply. Does nothing by itself.

    The callable runs between :meth:`resume` and :meth:`pause`: once if it answers at once, and once for each response
    if it is a generator, in the same thread or task each time.
    """

    def begin(self, requests: Sequence[Request]) -> None:
        """The callable is about to get these; not called for callables that take whole-batch arrays."""

    def resume(self) -> None:
        """The callable runs."""

    def pause(self) -> None:
        """The callable has returned, yielded or raised."""

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """A request has failed, or with None all of them.

        Args:
            request: Its index in the batch.
            again: The requests are repeated, each alone, instead of failing.
        """

    def replied(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """A reply is about to be sent."""

    def end(self, cancelled: bool = False) -> None:
        """No reply follows: the last one was sent, or the batch was cancelled."""


class Activity:
    """Counts the batches that are being answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._last_end = -math.inf

    def begin(self) -> None:
        """A batch has arrived."""
        with self._lock:
            self._running += 1

    def end(self) -> None:
        """A batch has its last reply."""
        with self._lock:
            self._running -= 1
            self._last_end = time.monotonic()

    def batches(self) -> int:
        """How many batches are being answered."""
        return self._running

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._running else time.monotonic() - self._last_end
