"""The caller's OpenTelemetry span, continued by the server.

Nothing is imported for it, nor is there anything to turn on: a program that has a current span uses OpenTelemetry, and
has loaded it.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["with_trace_context"]

_PROPAGATION = "opentelemetry.trace.propagation.tracecontext"


def with_trace_context(headers: dict[str, str]) -> dict[str, str]:
    """A request's headers, with the W3C trace context of the current span, if there is one.

    Args:
        headers: The request's own, which win.

    Returns:
        The same, or with ``traceparent``, and ``tracestate`` if the span has one.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return headers
    if any(name.lower() == "traceparent" for name in headers):
        return headers
    context: dict[str, str] = {}
    importlib.import_module(_PROPAGATION).TraceContextTextMapPropagator().inject(context)
    return {**context, **headers}
