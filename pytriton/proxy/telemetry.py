"""OpenTelemetry: the tracer of this process, and the spans of requests that the server traces.

OpenTelemetry is the extra ``telemetry``, and is imported by its name only once it is wanted, so that everything else
works without it. This file is not among those that are copied to the server: all spans of ours are made here, in the
process of the callables, below the server's span, whose context travels with the request.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, Tracer

__all__ = [
    "build_proxy_tracer_from_triton_config",
    "current",
    "end_span",
    "ensure_telemetry_tracer",
    "get_span_dict",
    "get_telemetry_tracer",
    "parse_trace_config",
    "raise_if_no_telemetry",
    "set_telemetry_tracer",
    "start_span_from_current",
    "start_span_from_remote",
    "start_span_from_span",
    "traced_span",
    "wants_telemetry",
]

NAME = "pytriton"
MODE = "mode=opentelemetry"
ADVICE = "install it with: pip install 'pytriton[telemetry]'"
# The server's own settings of its span processor, which ours follows, and the arguments that they are here.
PROCESSOR_SETTINGS = {
    "bsp_max_queue_size": "max_queue_size",
    "bsp_schedule_delay": "schedule_delay_millis",
    "bsp_max_export_batch_size": "max_export_batch_size",
}

_tracer: Tracer | None = None
_lock = threading.Lock()


def raise_if_no_telemetry() -> None:
    """Raise ImportError unless OpenTelemetry's API, SDK and exporter are installed."""
    for module in ("opentelemetry.trace", "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(f"tracing with OpenTelemetry needs {module}; {ADVICE}") from error


def set_telemetry_tracer(tracer: Tracer) -> None:
    """Have spans made by this tracer, in the whole process.

    Raises:
        ValueError: There is one already.
    """
    global _tracer
    with _lock:
        if _tracer is not None:
            raise ValueError("this process has a tracer already; set one once, before the first bind")
        _tracer = tracer


def get_telemetry_tracer() -> Tracer | None:
    """The tracer of this process; None if there is none."""
    return _tracer


def wants_telemetry(trace_config: Sequence[str] | None) -> bool:
    """Whether a trace configuration has the server trace with OpenTelemetry."""
    return any(item.replace(" ", "") == MODE for item in trace_config or ())


def parse_trace_config(trace_config: Sequence[str]) -> tuple[str, Resource]:
    """Where the server sends its spans, and what it says of itself.

    Args:
        trace_config: Items of ``TritonConfig.trace_config``, of which these count: ``mode=opentelemetry``,
            ``opentelemetry,url=<url>`` and any number of ``opentelemetry,resource=<key>=<value>[,<key>=<value>]``.

    Returns:
        The URL of the collector, and the resource.

    Raises:
        ImportError: OpenTelemetry is not installed.
        ValueError: The mode or the URL is missing, or an attribute is not of the form ``<key>=<value>``.
    """
    if not wants_telemetry(trace_config):
        raise ValueError(f"trace_config {list(trace_config)} has no item {MODE!r}")
    settings = _settings(trace_config)
    urls = [value for name, value in settings if name == "url" and value]
    if not urls:
        raise ValueError(
            f"trace_config {list(trace_config)} has no item 'opentelemetry,url=<url>', such as "
            "'opentelemetry,url=http://localhost:4318/v1/traces'"
        )
    attributes = {}
    for text in (value for name, value in settings if name == "resource"):
        for attribute in text.split(","):
            key, equals, value = attribute.partition("=")
            if not (key and equals):
                raise ValueError(f"the resource attribute {attribute!r} in trace_config is not of the form key=value")
            attributes[key.strip()] = value
    raise_if_no_telemetry()
    return urls[-1], importlib.import_module("opentelemetry.sdk.resources").Resource.create(attributes)


def build_proxy_tracer_from_triton_config(trace_config: Sequence[str]) -> Tracer:
    """A tracer that sends its spans where the server sends its own, over OTLP and HTTP.

    The provider belongs to this tracer alone: the program's own one, if any, is not touched. Spans that are left are
    sent when the interpreter exits.

    Raises:
        ImportError, ValueError: As :func:`parse_trace_config`; or a number is none.
    """
    url, resource = parse_trace_config(trace_config)
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    numbers = {
        PROCESSOR_SETTINGS[name]: int(text) for name, text in _settings(trace_config) if name in PROCESSOR_SETTINGS
    }
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=url), **numbers))
    tracer: Tracer = provider.get_tracer(NAME)
    return tracer


def ensure_telemetry_tracer(trace_config: Sequence[str]) -> None:
    """Build and set a tracer unless there is one; raises as :func:`build_proxy_tracer_from_triton_config`."""
    global _tracer
    with _lock:
        if _tracer is None:
            _tracer = build_proxy_tracer_from_triton_config(trace_config)


def start_span_from_span(span: Span, name: str, **attributes: Any) -> Span:
    """Start a child of a span; whoever starts it ends it.

    Raises:
        ValueError: This process has no tracer.
    """
    trace = importlib.import_module("opentelemetry.trace")
    return _required_tracer().start_span(name, trace.set_span_in_context(span), attributes=attributes)


def start_span_from_current(name: str, **attributes: Any) -> Span | None:
    """Start a child of the current span, if this process has a tracer and that span is recorded; end it yourself."""
    if _tracer is None:
        return None
    parent: Span = importlib.import_module("opentelemetry.trace").get_current_span()
    return start_span_from_span(parent, name, **attributes) if parent.is_recording() else None


def start_span_from_remote(
    context: Mapping[str, str] | str, name: str, start_time_ns: int | None = None, **attributes: Any
) -> Span:
    """Start a child of a span in another process; whoever starts it ends it.

    Args:
        context: W3C trace context: ``traceparent`` and, if any, ``tracestate``; also as JSON text.
        start_time_ns: Since the epoch; None is now.

    Raises:
        ValueError: This process has no tracer, or the text is no JSON.
    """
    carrier = json.loads(context) if isinstance(context, str) else dict(context)
    propagator = importlib.import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
    return _required_tracer().start_span(
        name, propagator.extract(carrier), start_time=start_time_ns, attributes=attributes
    )


def get_span_dict(span: Span) -> dict[str, str]:
    """A span's W3C trace context, as headers for another process."""
    trace = importlib.import_module("opentelemetry.trace")
    carrier: dict[str, str] = {}
    propagator = importlib.import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
    propagator.inject(carrier, trace.set_span_in_context(span))
    return carrier


def end_span(span: Span, error: BaseException | str | None = None) -> None:
    """End a span with the status OK, or ERROR and what went wrong."""
    trace = importlib.import_module("opentelemetry.trace")
    if error is None:
        span.set_status(trace.StatusCode.OK)
    else:
        if isinstance(error, BaseException):
            span.record_exception(error)
            error = type(error).__name__
        span.set_status(trace.StatusCode.ERROR, error)
    span.end()


@contextmanager
def traced_span(request: Any, span_name: str, **attributes: Any) -> Iterator[Span | None]:
    """Make what the block does a child span of a request's; a request that is not traced has none.

    The span is current in the block, so that instrumented libraries make children of it. It ends with the block, with
    the status ERROR if that raises.
    """
    parent = getattr(request, "span", None)
    if parent is None:
        yield None
        return
    trace = importlib.import_module("opentelemetry.trace")
    span = start_span_from_span(parent, span_name, **attributes)
    with trace.use_span(span, end_on_exit=True):
        yield span


@contextmanager
def current(span: Span | None) -> Iterator[None]:
    """Make a span the current one in the block, and leave its end and its status to others."""
    if span is None:
        yield
        return
    trace = importlib.import_module("opentelemetry.trace")
    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def _settings(trace_config: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of the items of the mode ``opentelemetry``."""
    items = (item.partition(",") for item in trace_config)
    pairs = (setting.partition("=") for mode, _, setting in items if mode.strip() == "opentelemetry")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _required_tracer() -> Tracer:
    if _tracer is None:
        raise ValueError("this process has no tracer; call set_telemetry_tracer, or bind with a trace configuration")
    return _tracer
