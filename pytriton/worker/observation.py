"""The observers of the batches of a process: metrics, spans and recordings, if they are enabled.

A :class:`BatchObserver` observes one batch, from its arrival to its last reply. The frame carries its observers to the
places where something happens that concerns them (``Frame.observers``). Without metrics, traces and
recordings there are none.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.proxy.telemetry import (
    current,
    end_span,
    ensure_telemetry_tracer,
    get_telemetry_tracer,
    start_span_from_remote,
    start_span_from_span,
    wants_telemetry,
)
from pytriton.proxy.types import Request
from pytriton.recording.writer import RotatingFile
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import AsyncReplies, BatchObserver, Replies, Reply
from pytriton.worker.metrics import CallableMetrics
from pytriton.worker.recording import NumberedRecording, Recorder, RecordingStatus

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = [
    "CALLABLE_SPAN",
    "EXECUTE_SPAN",
    "Observation",
    "Spans",
    "end",
    "key_of",
    "observed",
    "observed_async",
    "pause",
    "replied",
    "resume",
    "traces",
]

LOGGER = get_logger("pytriton.worker")

EXECUTE_SPAN = "python_backend_execute"
CALLABLE_SPAN = "proxy_inference_callable"


def traces(model: str, trace_config: Sequence[str] | None, of_the_server: Sequence[str] | None) -> bool:
    """Whether the requests of a model get spans in this process. Creates the tracer when it is first needed.

    Args:
        trace_config: The model's trace configuration; None uses that of the server.

    Raises:
        ImportError: It is for OpenTelemetry, which is not installed.
        ValueError: It lacks the URL to send spans to.
    """
    if trace_config is None and of_the_server:
        LOGGER.info("model %s: its traces follow the server's trace_config", model)
        trace_config = of_the_server
    if trace_config is not None and wants_telemetry(trace_config):
        ensure_telemetry_tracer(trace_config)
    return get_telemetry_tracer() is not None


class Spans(BatchObserver):
    """OpenTelemetry's spans of those requests of a batch that the server traces.

    ::

        the server's span, from the request's trace context
        └── python_backend_execute      from the moment in which the proxy got the request to its last reply
            └── proxy_inference_callable    the callable's time; Request.span

    While the callable runs, the span of the first of them is the current one, so that instrumented libraries make
    children of it.
    """

    def __init__(self, model: str, version: int, frame: Frame) -> None:
        attributes: dict[str, Any] = {"pytriton.model": model, "pytriton.version": version}
        attributes["pytriton.requests"] = frame.requests
        self._execute: dict[int, Span] = {}
        self._callable: dict[int, Span] = {}
        for index, entry in json.loads(frame.metadata).items():
            trace = entry.get("trace")
            if trace is not None:
                if "reason" in trace:  # of the native proxy's batcher
                    attributes["pytriton.batch_reason"] = trace["reason"]
                span = start_span_from_remote(trace["context"], EXECUTE_SPAN, trace["since_ns"], **attributes)
                self._execute[int(index)] = span
                self._callable[int(index)] = start_span_from_span(span, CALLABLE_SPAN, **attributes)
        self._errors: dict[int, BaseException] = {}
        self._current: AbstractContextManager[Any] | None = None

    @staticmethod
    def are_wanted(frame: Frame) -> bool:
        """Whether the server may trace a request of a batch; a quick check, which a parameter can deceive."""
        return b'"trace"' in frame.metadata

    def begin(self, requests: Sequence[Request]) -> None:
        """Set the spans of the requests."""
        for index, span in self._callable.items():
            requests[index].span = span

    def resume(self) -> None:
        """Make the first request's span the current one."""
        if self._callable:
            self._current = current(next(iter(self._callable.values())))
            self._current.__enter__()

    def pause(self) -> None:
        """Make the previous span the current one again."""
        if self._current is not None:
            self._current.__exit__(None, None, None)
            self._current = None

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Remember an error for the spans' end."""
        for index in self._callable if request is None else (request,):
            self._errors.setdefault(index, error)

    def end(self, cancelled: bool = False) -> None:
        """End the spans, each with its request's outcome."""
        for index, span in self._callable.items():
            error = self._errors.get(index) or ("the request was cancelled" if cancelled else None)
            end_span(span, error)
            end_span(self._execute[index], None if error is None else str(error) if cancelled else type(error).__name__)


class Observation:
    """Creates the observers of one ``Triton`` object's batches."""

    def __init__(self) -> None:
        self._metrics: CallableMetrics | None = None
        self._recorders: dict[tuple[str, int], Recorder] = {}
        self._recording_numbers = count(1)
        self._followers: list[Callable[[], None]] = []
        self._recording = threading.Lock()

    @property
    def metrics(self) -> CallableMetrics | None:
        """Counts batches; None until metrics are enabled."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: CallableMetrics) -> None:
        self._metrics = metrics
        self._tell()

    def _tell(self) -> None:
        for follower in list(self._followers):
            follower()

    def start_recording(self, config: TritonModelConfig, recording: Recording) -> None:
        """Record the requests of a model that arrive from now on. Thread-safe.

        Raises:
            PyTritonInvalidOperationError: They are recorded already, the files are those of another recording, or they
                cannot be written.
        """
        name, given = f"model {config.model_name!r}", Path(recording.path)
        path = given.parent.resolve() / given.name
        with self._recording:
            if self.recorder(config) is not None:
                raise PyTritonInvalidOperationError(f"{name} is recorded already; stop that first")
            for recorder in self._recorders.values():
                other = Path(recorder.recording.path)
                if _is_file_of(path, other) or _is_file_of(other, path):
                    raise PyTritonInvalidOperationError(f"{path} is a file of another recording; choose another path")
            try:
                files = RotatingFile(path, recording.file_bytes, recording.files)
            except OSError as error:
                raise PyTritonInvalidOperationError(f"{name} cannot be recorded to {path}: {error}") from error
            numbered = NumberedRecording(next(self._recording_numbers), replace(recording, path=path))
            recorder = Recorder(config, numbered, lambda records, *_: files.write(records), files.close)
            self._recorders = {**self._recorders, key_of(config): recorder}
            self._tell()
        LOGGER.warning("%s: a share of %g of its requests is recorded in %s", name, recording.share, path)

    def stop_recording(self, config: TritonModelConfig) -> RecordingStatus | None:
        """Stop that, and return what has come of it, once it is written; None if they were not recorded."""
        with self._recording:
            recorder = self.recorder(config)
            if recorder is None:
                return None
            recorder.stop()
            self._tell()  # worker processes report what they have
            recorder.close()  # before its files may be those of another one
            del self._recorders[key_of(config)]
        status = recorder.status()
        LOGGER.info("model %s is recorded no longer: %s", config.model_name, status)
        return status

    def recorder(self, config: TritonModelConfig) -> Recorder | None:
        """What records the requests of a model; None if they are not recorded."""
        return self._recorders.get(key_of(config))

    def recording(self, config: TritonModelConfig) -> NumberedRecording | None:
        """What is to be recorded of a model now; the same object until that changes."""
        recorder = self.recorder(config)
        return None if recorder is None or recorder.is_stopped else recorder.numbered

    def is_idle(self) -> bool:
        """Whether nothing observes any batch, so that :meth:`observers` need not be called."""
        return self._metrics is None and not self._recorders and get_telemetry_tracer() is None

    def follow(self, follower: Callable[[], None]) -> None:
        """Call ``follower`` when metrics are enabled, at once if they are already, and when recordings start or end."""
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
        recorder = self._recorders.get((model, version)) if self._recorders else None
        if recorder is not None and (record := recorder.sample(frame)) is not None:
            observers.append(record)
        return observers


def _is_file_of(path: Path, newest: Path) -> bool:
    """Whether a recording with this newest file may have a file with this path."""
    return path.parent == newest.parent and bool(re.fullmatch(re.escape(newest.name) + r"(\.[0-9]+)?", path.name))


def key_of(config: TritonModelConfig) -> tuple[str, int]:
    """What tells a version of a model from others."""
    return config.model_name, config.model_version


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
        replied(self._observers, reply)
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
                replied(observers, reply)
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


def replied(observers: Sequence[BatchObserver], reply: Reply) -> None:
    """Tell them of a reply."""
    for observer in observers:
        observer.replied(*reply)


def end(observers: Sequence[BatchObserver], cancelled: bool = False) -> None:
    """Tell them that no reply follows."""
    for observer in observers:
        observer.end(cancelled)
