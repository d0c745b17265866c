"""Who observes the batches of a process, and the inference that lets them.

A :class:`Watch` observes one batch, from its arrival to its last reply. The frame carries its watches to where
something happens that they want to know (``Frame.watches``). Without metrics and traces there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from pytriton.proxy.frames import Frame
from pytriton.proxy.telemetry import get_telemetry_tracer
from pytriton.worker.inference import AsyncReplies, Callee, Inference, Replies, Reply
from pytriton.worker.metrics import CallableMetrics
from pytriton.worker.spans import Spans
from pytriton.worker.watch import Watch

__all__ = ["Observation", "ObservedInference"]


class Observation:
    """What one ``Triton`` object has observed."""

    def __init__(self) -> None:
        self._metrics: CallableMetrics | None = None
        self._followers: list[Callable[[], None]] = []

    @property
    def metrics(self) -> CallableMetrics | None:
        """Counts batches; None until somebody wants metrics."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: CallableMetrics) -> None:
        self._metrics = metrics
        for follower in list(self._followers):
            follower()

    def is_idle(self) -> bool:
        """Whether nobody observes any batch, so that :meth:`watches` need not be called."""
        return self._metrics is None and get_telemetry_tracer() is None

    def follow(self, follower: Callable[[], None]) -> None:
        """Have somebody called when metrics are wanted; at once if they are already."""
        self._followers.append(follower)
        if self._metrics is not None:
            follower()

    def unfollow(self, follower: Callable[[], None]) -> None:
        """Forget somebody who follows."""
        with suppress(ValueError):
            self._followers.remove(follower)

    def watches(self, model: str, version: int, frame: Frame) -> list[Watch]:
        """Those who observe a batch that has just arrived for a version of a model."""
        watches: list[Watch] = []
        if get_telemetry_tracer() is not None and Spans.are_wanted(frame):
            watches.append(Spans(model, version, frame))
        if self.metrics is not None:
            watches.append(self.metrics.watch(model, version, frame))
        return watches


class ObservedInference(Inference):
    """An inference that has its batches observed.

    Args:
        observation: Says by whom.
        arguments: Those of Inference; the second is the model's configuration.
    """

    def __init__(self, observation: Observation, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._observation = observation
        self._version = arguments[1].model_version

    def answer(self, frame: Frame) -> Reply:
        """As :meth:`Inference.answer`."""
        watches = self._watch(frame)
        if not watches:
            return super().answer(frame)
        _resume(watches)
        try:
            return super().answer(frame)
        finally:
            _pause(watches)
            _end(watches)

    def whole_batch_callee(self) -> Callee | None:
        """As :meth:`Inference.whole_batch_callee`; None while batches are observed."""
        return super().whole_batch_callee() if self._observation.is_idle() else None

    def stream(self, frame: Frame) -> Replies:
        """As :meth:`Inference.stream`."""
        watches = self._watch(frame)
        replies = super().stream(frame)
        return _WatchedReplies(replies, watches) if watches else replies

    def stream_async(self, frame: Frame) -> AsyncReplies:
        """As :meth:`Inference.stream_async`."""
        watches = self._watch(frame)
        replies = super().stream_async(frame)
        return _watched(replies, watches) if watches else replies

    def _watch(self, frame: Frame) -> Sequence[Watch]:
        watches = self._observation.watches(self._model, self._version, frame)
        frame.watches = watches
        return watches


class _WatchedReplies(Generator[Reply, None, None]):
    """Replies that are made under the eyes of watches; a generator proper would not notice its end before its start."""

    def __init__(self, replies: Replies, watches: Sequence[Watch]) -> None:
        self._replies = replies
        self._watches = watches
        self._begun = self._complete = False

    def send(self, value: None) -> Reply:
        self._begun = True
        _resume(self._watches)
        try:
            reply = self._replies.send(value)
        finally:
            _pause(self._watches)
        self._complete = not reply[0].more
        return reply

    def throw(self, *error: Any) -> Reply:
        return self._replies.throw(*error)

    def close(self) -> None:
        watches, self._watches = self._watches, ()
        running = watches if self._begun else ()
        _resume(running)
        try:
            self._replies.close()
        finally:
            _pause(running)
            _end(watches, cancelled=not self._complete)


async def _watched(replies: AsyncReplies, watches: Sequence[Watch]) -> AsyncReplies:
    complete = False
    try:
        async with aclosing(replies):
            while True:
                _resume(watches)
                try:
                    reply = await anext(replies, None)
                finally:
                    _pause(watches)
                if reply is None:
                    return
                complete = not reply[0].more
                yield reply
                del reply
    finally:
        _end(watches, cancelled=not complete)


def _resume(watches: Sequence[Watch]) -> None:
    for watch in watches:
        watch.resume()


def _pause(watches: Sequence[Watch]) -> None:
    for watch in watches:
        watch.pause()


def _end(watches: Sequence[Watch], cancelled: bool = False) -> None:
    for watch in watches:
        watch.end(cancelled)
