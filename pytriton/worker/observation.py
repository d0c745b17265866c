"""The observers of the batches of a process: metrics and spans, if they are enabled.

A :class:`BatchObserver` observes one batch, from its arrival to its last reply. The frame carries its observers to the
places where something happens that concerns them (``Frame.observers``). Without metrics and traces there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from pytriton.proxy.telemetry import get_telemetry_tracer
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import AsyncReplies, BatchObserver, Replies, Reply
from pytriton.worker.metrics import CallableMetrics
from pytriton.worker.spans import Spans

__all__ = ["Observation", "end", "observed", "observed_async", "pause", "resume"]


class Observation:
    """Creates the observers of one ``Triton`` object's batches."""

    def __init__(self) -> None:
        self._metrics: CallableMetrics | None = None
        self._followers: list[Callable[[], None]] = []

    @property
    def metrics(self) -> CallableMetrics | None:
        """Counts batches; None until metrics are enabled."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: CallableMetrics) -> None:
        self._metrics = metrics
        for follower in list(self._followers):
            follower()

    def is_idle(self) -> bool:
        """Whether nothing observes any batch, so that :meth:`observers` need not be called."""
        return self._metrics is None and get_telemetry_tracer() is None

    def follow(self, follower: Callable[[], None]) -> None:
        """Call ``follower`` when metrics are enabled; at once if they are enabled already."""
        self._followers.append(follower)
        if self._metrics is not None:
            follower()

    def unfollow(self, follower: Callable[[], None]) -> None:
        """Remove a follower."""
        with suppress(ValueError):
            self._followers.remove(follower)

    def observers(self, model: str, version: int, frame: Frame) -> list[BatchObserver]:
        """The observers of a batch that has just arrived for a version of a model."""
        observers: list[BatchObserver] = []
        if get_telemetry_tracer() is not None and Spans.are_wanted(frame):
            observers.append(Spans(model, version, frame))
        if self.metrics is not None:
            observers.append(self.metrics.observer(model, version, frame))
        return observers


def observed(replies: Replies, observers: Sequence[BatchObserver]) -> Replies:
    """Replies of one batch, while it is observed."""
    return _ObservedReplies(replies, observers) if observers else replies


class _ObservedReplies(Generator[Reply, None, None]):
    """Replies of an observed batch. A generator function would not notice a close before its first step."""

    def __init__(self, replies: Replies, observers: Sequence[BatchObserver]) -> None:
        self._replies = replies
        self._observers = observers
        self._begun = self._complete = False

    def send(self, value: None) -> Reply:
        self._begun = True
        resume(self._observers)
        try:
            reply = self._replies.send(value)
        finally:
            pause(self._observers)
        self._complete = not reply[0].more
        return reply

    def throw(self, *error: Any) -> Reply:
        return self._replies.throw(*error)

    def close(self) -> None:
        observers, self._observers = self._observers, ()
        running = observers if self._begun else ()
        resume(running)
        try:
            self._replies.close()
        finally:
            pause(running)
            end(observers, cancelled=not self._complete)


async def observed_async(replies: AsyncReplies, observers: Sequence[BatchObserver]) -> AsyncReplies:
    """As :func:`observed`, on the running event loop."""
    complete = False
    try:
        async with aclosing(replies):
            while True:
                resume(observers)
                try:
                    reply = await anext(replies, None)
                finally:
                    pause(observers)
                if reply is None:
                    return
                complete = not reply[0].more
                yield reply
                del reply
    finally:
        end(observers, cancelled=not complete)


def resume(observers: Sequence[BatchObserver]) -> None:
    """Tell observers that the callable runs."""
    for observer in observers:
        observer.resume()


def pause(observers: Sequence[BatchObserver]) -> None:
    """Tell them that it has returned, yielded or raised."""
    for observer in observers:
        observer.pause()


def end(observers: Sequence[BatchObserver], cancelled: bool = False) -> None:
    """Tell them that no reply follows."""
    for observer in observers:
        observer.end(cancelled)
