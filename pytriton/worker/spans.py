"""OpenTelemetry spans of the requests of one batch.

::

the server's span, from the request's trace context
└── python_backend_execute      from the moment in which the proxy got the request to its last reply
    └── proxy_inference_callable    the callable's time; Request.span
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

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
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import BatchObserver

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["CALLABLE_SPAN", "EXECUTE_SPAN", "Spans", "traces"]

LOGGER = logging.getLogger("pytriton.worker")

EXECUTE_SPAN = "python_backend_execute"
CALLABLE_SPAN = "proxy_inference_callable"


def traces(model: str, trace_config: Sequence[str] | None, of_the_server: Sequence[str] | None) -> bool:
    """Whether the requests of a model get spans in this process. Creates the tracer when it is first needed.

    Args:
        model: The model's name.
        trace_config: The model's trace configuration; None uses that of the server.
        of_the_server: The server's trace configuration.

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
    """The spans of those requests of a batch that the server traces.

    While the callable runs, the span of the first of them is the current one, so that instrumented libraries make
    children of it.

    Args:
        model: Name of the model.
        version: Its version.
        frame: The batch.
    """

    def __init__(self, model: str, version: int, frame: Frame) -> None:
        attributes = {"pytriton.model": model, "pytriton.version": version, "pytriton.requests": frame.requests}
        self._execute: dict[int, Span] = {}
        self._callable: dict[int, Span] = {}
        for index, entry in json.loads(frame.metadata).items():
            trace = entry.get("trace")
            if trace is not None:
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
