"""The ways to answer frames with a callable, of which its form and its model choose one."""

from __future__ import annotations

from typing import Any, Protocol

from pytriton.worker.channel import Answer, Channel
from pytriton.worker.event_loop import EventLoop
from pytriton.worker.inference import Inference
from pytriton.worker.results import is_async
from pytriton.worker.streams import Streams
from pytriton.worker.turns import Turns

__all__ = ["Engine", "make_engine"]


class Engine(Protocol):
    """Answers frames with a callable."""

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

    def drain(self) -> None:
        """Answer what has come, when the proxy can send nothing more; else its end is that of all that runs."""

    def close(self) -> None:
        """Give back what the callable used; after the last :meth:`serve`."""


def make_engine(function: Any, inference: Inference, several: bool, name: str) -> Engine:
    """The engine for one model instance.

    Args:
        function: The inference callable.
        inference: Calls it.
        several: Whether the proxy sends batches before earlier ones are answered; it must if the callable is async.
        name: Of the instance, for its thread.
    """
    if is_async(function):
        return EventLoop(inference, name)
    return Streams(inference) if several else Turns(inference)
