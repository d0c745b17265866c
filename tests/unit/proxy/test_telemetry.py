import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pytriton.client.arguments import with_trace_context
from pytriton.proxy import telemetry
from pytriton.proxy.types import Request
from pytriton.worker.observation import traces
from tests.unit.tracers import no_tracer

URL = "http://localhost:4318/v1/traces"
CONFIG = ["mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={URL}"]
CONTEXT = {"traceparent": f"00-{5:032x}-{7:016x}-01"}


@pytest.fixture(autouse=True)
def process_without_tracer():
    with no_tracer():
        yield


@pytest.fixture
def exporter():
    """Where the spans of the process's tracer go."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.set_telemetry_tracer(provider.get_tracer("test"))
    return exporter


def test_a_configuration_names_the_collector_and_the_resource():
    items = ["opentelemetry,resource=service.name=shop,team=search", "opentelemetry,resource=zone=a=b"]
    url, resource = telemetry.parse_trace_config([*CONFIG, *items])
    assert url == URL
    assert {"service.name": "shop", "team": "search", "zone": "a=b"}.items() <= dict(resource.attributes).items()


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ([], "mode=opentelemetry"),
        (["mode=triton", f"opentelemetry,url={URL}"], "mode=opentelemetry"),
        (["mode=opentelemetry"], "opentelemetry,url="),
        (["mode=opentelemetry", "triton,url=x"], "opentelemetry,url="),
        ([*CONFIG, "opentelemetry,resource=key"], "'key'"),
    ],
)
def test_a_configuration_that_lacks_something_is_an_error_that_says_what(config, what):
    with pytest.raises(ValueError, match=what):
        telemetry.parse_trace_config(config)


def test_a_tracer_is_set_once(exporter):
    tracer = telemetry.get_telemetry_tracer()
    with pytest.raises(ValueError, match="already"):
        telemetry.set_telemetry_tracer(tracer)
    assert telemetry.get_telemetry_tracer() is tracer


def test_a_tracer_of_the_program_is_kept_when_a_model_is_bound(exporter):
    tracer = telemetry.get_telemetry_tracer()
    assert traces("m", CONFIG, None)
    assert telemetry.get_telemetry_tracer() is tracer


def test_a_model_follows_the_servers_configuration_unless_it_has_its_own(caplog):
    assert not traces("m", None, None)
    assert not traces("m", ["mode=triton"], CONFIG)
    assert telemetry.get_telemetry_tracer() is None
    with caplog.at_level("INFO", logger="pytriton"):
        assert traces("m", None, CONFIG)
    assert "follow the server's trace_config" in caplog.text
    telemetry.get_telemetry_tracer().span_processor.shutdown()


def test_without_a_tracer_no_span_can_be_started():
    assert telemetry.start_span_from_current("x") is None
    with pytest.raises(ValueError, match="no tracer"):
        telemetry.start_span_from_remote(CONTEXT, "x")


@pytest.mark.parametrize("context", [CONTEXT, '{"traceparent": "' + CONTEXT["traceparent"] + '"}'])
def test_a_span_continues_one_of_another_process(exporter, context):
    span = telemetry.start_span_from_remote(context, "x", 1_000, size=3)
    telemetry.end_span(span)
    (ended,) = exporter.get_finished_spans()
    assert (ended.context.trace_id, ended.parent.span_id, ended.start_time) == (5, 7, 1_000)
    assert (ended.attributes["size"], ended.status.status_code) == (3, trace.StatusCode.OK)
    assert telemetry.get_span_dict(span) == {"traceparent": f"00-{5:032x}-{ended.context.span_id:016x}-01"}


def test_a_span_ends_with_its_error(exporter):
    telemetry.end_span(telemetry.start_span_from_remote(CONTEXT, "x"), KeyError("k"))
    (ended,) = exporter.get_finished_spans()
    assert (ended.status.status_code, ended.status.description) == (trace.StatusCode.ERROR, "KeyError")
    assert [event.name for event in ended.events] == ["exception"]


def test_a_request_has_child_spans_which_fail_with_the_block(exporter):
    request = Request({}, span=telemetry.start_span_from_remote(CONTEXT, "parent"))
    current = []

    def fail():
        with request.traced_span("child") as span:
            current.extend([trace.get_current_span(), span])
            raise KeyError("k")

    with pytest.raises(KeyError):
        fail()
    assert current[0] is current[1]
    (child,) = exporter.get_finished_spans()
    assert (child.parent.span_id, child.status.status_code) == (
        request.span.get_span_context().span_id,
        trace.StatusCode.ERROR,
    )


def test_a_request_without_a_span_has_no_child_spans():
    with Request({}).traced_span("child") as span:
        assert span is None


def test_a_clients_headers_have_the_current_span_unless_they_have_one_themselves():
    assert with_trace_context({"a": "b"}) == {"a": "b"}
    with TracerProvider().get_tracer("t").start_as_current_span("root") as span:
        context = telemetry.get_span_dict(span)
        assert with_trace_context({"a": "b"}) == {"a": "b", **context}
        assert with_trace_context({"TraceParent": "x"}) == {"TraceParent": "x"}


def test_what_is_missing_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ImportError, match=r"pytriton\[telemetry\]"):
        traces("m", CONFIG, None)
    assert not traces("m", ["mode=triton", "triton,file=x"], None)
