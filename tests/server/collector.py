"""A collector of OpenTelemetry spans: OTLP over HTTP, as protobuf (from Python's SDK) or JSON (from the server)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.processes import DEADLINE_S

STATUS = {0: "UNSET", 1: "OK", 2: "ERROR"}


class Span(NamedTuple):
    """One span; ids are hexadecimal, and ``parent`` is empty for a root. Times in ns since the epoch."""

    name: str
    trace: str
    id: str
    parent: str
    status: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[str]
    resource: dict[str, Any]


class Collector:
    """The spans that have come.

    Args:
        url: Where to send them.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[Span] = []
        self._changed = threading.Condition()

    def add(self, kind: str, body: bytes) -> None:
        message = json.loads(body) if "json" in kind else _decoded(body)
        with self._changed:
            self._spans += _spans(message)
            self._changed.notify_all()

    def wait_for(self, name: str, count: int = 1, where: Callable[[Span], bool] = lambda span: True) -> list[Span]:
        """So many spans of a name, in the order of their beginnings, once there are as many."""

        def found() -> list[Span]:
            return [span for span in self._spans if span.name == name and where(span)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, DEADLINE_S), [s.name for s in self._spans]
            assert len(found()) == count
            return sorted(found(), key=lambda span: span.begin_ns)

    def spans(self) -> list[Span]:
        """What has come."""
        with self._changed:
            return [*self._spans]

    def trace(self, identifier: str) -> dict[str, Span]:
        """What has come of one trace, by name."""
        with self._changed:
            return {span.name: span for span in self._spans if span.trace == identifier}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.add(self.headers["Content-Type"], body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _decoded(body: bytes) -> Any:
    """As OTLP's JSON; but protobuf's own has ids in base64, which are put right."""
    request = ExportTraceServiceRequest.FromString(body)
    message = json_format.MessageToDict(request, use_integers_for_enums=True)
    for resource, raw in zip(message["resourceSpans"], request.resource_spans, strict=True):
        for scope, raw_scope in zip(resource["scopeSpans"], raw.scope_spans, strict=True):
            for span, raw_span in zip(scope["spans"], raw_scope.spans, strict=True):
                ids = (raw_span.trace_id.hex(), raw_span.span_id.hex(), raw_span.parent_span_id.hex())
                span["traceId"], span["spanId"], span["parentSpanId"] = ids
    return message


def _spans(message: Any) -> Iterator[Span]:
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield Span(
                    span["name"],
                    span["traceId"].lower(),
                    span["spanId"].lower(),
                    span.get("parentSpanId", "").lower(),
                    STATUS[span.get("status", {}).get("code", 0)],
                    int(span["startTimeUnixNano"]),
                    int(span["endTimeUnixNano"]),
                    _attributes(span),
                    [event["name"] for event in span.get("events", ())],
                    _attributes(resource["resource"]),
                )


def _attributes(of: Any) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in of.get("attributes", ())}
