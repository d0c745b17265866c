"""One trace goes from the client through the server to the callable."""

import asyncio
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.client.utils import create_client_from_url
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.proxy import telemetry
from pytriton.workers import Processes, RemoteWorkers
from tests.server.arrays import filled
from tests.server.collector import collecting
from tests.server.conftest import local_config
from tests.server.gated import Gated
from tests.server.own_server import address
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import IS_NATIVE
from tests.unit.generators import count_up, count_up_async
from tests.unit.tracers import no_tracer

EXECUTE, CALLABLE, BATCH = "python_backend_execute", "proxy_inference_callable", "pytriton-batch-decorator-span"


@pytest.fixture(scope="module")
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def triton_config(collector):
    settings = [
        "mode=opentelemetry",
        "level=TIMESTAMPS",
        "rate=1",
        f"opentelemetry,url={collector.url}",
        "opentelemetry,resource=service.name=shop",  # the server would take "=" and "," of one item for a value
        "opentelemetry,resource=team=search",
        "opentelemetry,bsp_schedule_delay=50",
    ]
    with no_tracer(), local_config(trace_config=settings) as config:
        yield config
        telemetry.get_telemetry_tracer().span_processor.shutdown()


@pytest.fixture(scope="module")
def http_url(triton_config):
    return address(triton_config, "http")


@pytest.fixture(scope="module")
def tracer():
    """The program's own; nobody collects its spans."""
    return TracerProvider().get_tracer("program")


@pytest.fixture
def root(tracer):
    """The current span of a test."""
    with tracer.start_as_current_span("root") as span:
        yield span.get_span_context()


def double(requests):
    return [{"y": request["x"] * 2} for request in requests]


def identifier(context):
    return trace.format_trace_id(context.trace_id)


def of(context):
    return lambda span: span.trace == identifier(context)


def ended(collector, model):
    """The spans of the trace of the one request that a model got, by name, once it has ended."""
    (span,) = collector.wait_for(EXECUTE, where=lambda span: span.attributes["pytriton.model"] == model)
    return collector.trace(span.trace)


def test_a_request_is_one_trace_from_the_client_to_the_callable(bind, http_url, root, collector):
    model = bind(double)
    with ModelClient(http_url, model) as client:
        client.infer_batch(filled(1))
        collector.wait_for("InferRequest", where=of(root))
    spans = ended(collector, model)
    assert spans["InferRequest"].trace == identifier(root)
    assert spans["InferRequest"].parent == trace.format_span_id(root.span_id)
    assert spans[model].parent == spans["InferRequest"].id
    if IS_NATIVE:
        assert spans[EXECUTE].attributes["pytriton.batch_reason"] == "worker_idle"
    assert spans[EXECUTE].parent == spans[model].id
    assert spans[CALLABLE].parent == spans[EXECUTE].id
    assert {spans[EXECUTE].status, spans[CALLABLE].status} == {"OK"}
    assert spans[model].begin_ns <= spans[EXECUTE].begin_ns <= spans[CALLABLE].begin_ns
    assert spans[CALLABLE].end_ns <= spans[EXECUTE].end_ns <= spans["InferRequest"].end_ns
    for span in (spans["InferRequest"], spans[CALLABLE]):
        assert span.resource["service.name"] == "shop"
        assert span.resource["team"] == "search"


def test_a_worker_process_continues_the_trace(bind, http_url, root, collector):
    model = bind(Processes(lambda: double, count=1))
    with ModelClient(http_url, model) as client:
        client.infer_batch(filled(1))
    spans = ended(collector, model)
    assert spans[EXECUTE].trace == identifier(root)
    assert spans[CALLABLE].parent == spans[EXECUTE].id


def test_a_remote_worker_continues_the_trace(triton, http_url, root, collector):
    pytest.importorskip("zmq")
    vector = {"shape": (-1,), "dtype": np.float32}
    with reserved_ports(1) as (port,):
        address = f"tcp://127.0.0.1:{port}"
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytriton", "worker", "--model=far", "remote_models:make_double"),
                *(f"--connect={address}", f"--app-dir={Path(__file__).parent}"),
            ]
        )
        try:
            triton.bind("far", RemoteWorkers(address), [Tensor(name="x", **vector)], [Tensor(name="y", **vector)])
            with ModelClient(http_url, "far") as client:
                client.infer_batch(filled(1))
            spans = ended(collector, "far")
        finally:
            worker.kill()
            worker.wait()
            triton.unbind("far")
    assert spans[EXECUTE].trace == identifier(root)
    assert spans[CALLABLE].parent == spans[EXECUTE].id


def test_without_a_span_of_the_client_the_server_begins_the_trace(bind, url, collector):
    model = bind(double)
    with ModelClient(url, model) as client:
        client.infer_batch(filled(1))
        spans = ended(collector, model)
        (server,) = collector.wait_for("InferRequest", where=lambda span: span.trace == spans[EXECUTE].trace)
    assert server.parent.strip("0") == ""
    assert spans[CALLABLE].status == "OK"


def test_a_context_that_the_caller_gives_wins(bind, http_url, root, collector):
    model, given = bind(double), f"{17:032x}"
    with ModelClient(http_url, model) as client:
        client.infer_batch(filled(1), headers={"Traceparent": f"00-{given}-{3:016x}-01"})
    assert ended(collector, model)[EXECUTE].trace == given


def test_asyncio_clients_continue_the_spans_of_their_tasks(bind, http_url, tracer, collector):
    async def infer(client):
        with tracer.start_as_current_span("task") as span:
            await client.infer_batch(filled(1))
            return span.get_span_context()

    async def main():
        async with AsyncioModelClient(http_url, bind(double)) as client:
            return await asyncio.gather(*[infer(client) for _ in range(3)])

    contexts = asyncio.run(main())
    assert len({identifier(context) for context in contexts}) == 3
    for context in contexts:
        collector.wait_for(CALLABLE, where=of(context))


def test_futures_clients_continue_the_span_of_their_caller_even_from_the_queue(bind, http_url, tracer, collector):
    contexts = []
    with FuturesModelClient(http_url, bind(double), max_workers=1) as client:
        futures = []
        for _ in range(3):
            with tracer.start_as_current_span("root") as span:
                contexts.append(span.get_span_context())
                futures.append(client.infer_batch(filled(1)))
        for future in futures:
            future.result(DEADLINE_S)
    for context in contexts:
        collector.wait_for(CALLABLE, where=of(context))


@pytest.mark.parametrize("kind", [ModelClient, DecoupledModelClient])
def test_grpc_carries_the_context_of_most_requests(bind, grpc_url, tracer, collector, kind):
    """Triton 2.51 loses that of some, and begins new traces for them."""
    streamed = kind is DecoupledModelClient
    model = bind(count_up if streamed else double, decoupled=streamed)
    traces = set()
    with kind(grpc_url, model) as client:
        for _ in range(20):
            with tracer.start_as_current_span("root") as span:
                traces.add(identifier(span.get_span_context()))
                answer = client.infer_batch(filled(1))
                assert not streamed or len([*answer]) == 1
    spans = collector.wait_for(CALLABLE, 20, where=lambda span: span.attributes["pytriton.model"] == model)
    assert {span.status for span in spans} == {"OK"}
    assert traces & {span.trace for span in spans}


def test_asyncio_streams_are_traced(bind, grpc_url, collector):
    async def main():
        async with AsyncioDecoupledModelClient(grpc_url, model) as client:
            return [response async for response in client.infer_sample(filled(3)[0])]

    model = bind(count_up_async, decoupled=True)
    assert len(asyncio.run(main())) == 3
    assert ended(collector, model)[CALLABLE].status == "OK"


def test_a_stream_that_its_client_leaves_is_an_error(bind, grpc_url, collector):
    def endless(requests):
        while True:
            yield [{"y": request["x"]} for request in requests]

    model = bind(endless, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client, closing(client.infer_batch(filled(1))) as responses:
        next(responses)
    spans = ended(collector, model)
    assert (spans[CALLABLE].status, spans[EXECUTE].status) == ("ERROR", "ERROR")


def test_an_exception_is_recorded_in_the_callables_span(bind, url, collector):
    def failing(requests):
        raise KeyError("no such thing")

    model = bind(failing)
    with ModelClient(url, model) as client, pytest.raises(Exception, match="no such thing"):
        client.infer_batch(filled(1))
    spans = ended(collector, model)
    assert (spans[CALLABLE].status, spans[CALLABLE].events) == ("ERROR", ["exception"])
    assert spans[EXECUTE].status == "ERROR"


def test_a_request_opens_spans_of_its_own_and_libraries_continue_it(bind, url, collector):
    def working(requests):
        (request,) = requests
        assert trace.get_current_span() is request.span
        with request.traced_span("step") as span:
            assert trace.get_current_span() is span
        return [{"y": request["x"]}]

    model = bind(working)
    with ModelClient(url, model) as client:
        client.infer_batch(filled(1))
    spans = ended(collector, model)
    assert spans["step"].parent == spans[CALLABLE].id


def test_a_request_that_is_not_traced_has_no_span(bind, url):
    seen = []

    def working(requests):
        with requests[0].traced_span("step") as span:
            seen.append((requests[0].span, span))
        return double(requests)

    name = bind(working)
    with closing(create_client_from_url(url)) as server, ModelClient(url, name) as client:
        server.update_trace_settings(name, {"trace_level": ["OFF"]})
        client.infer_batch(filled(1))
    assert seen == [(None, None)]


@batch
def batched(x):
    return [x * 2]


@batch
async def batched_async(x):
    await asyncio.sleep(0)
    return [x * 2]


@pytest.mark.parametrize("function", [batched, batched_async])
def test_the_batch_decorator_makes_a_span(bind, url, collector, function):
    model = bind(function)
    with ModelClient(url, model) as client:
        client.infer_batch(filled(1))
    spans = ended(collector, model)
    assert (spans[BATCH].parent, spans[BATCH].status) == (spans[CALLABLE].id, "OK")


def test_the_batch_decorator_makes_a_span_for_generators(bind, grpc_url, collector):
    @batch
    def counting(x):
        yield [x]
        yield [x]

    model = bind(counting, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        assert len([*client.infer_batch(filled(1))]) == 2
    spans = ended(collector, model)
    assert (spans[BATCH].parent, spans[BATCH].status) == (spans[CALLABLE].id, "OK")


def test_merged_requests_keep_their_own_traces(bind, http_url, tracer, collector, pending):
    gated = Gated()
    model = bind(gated, max_batch_size=8)
    contexts = []
    with FuturesModelClient(http_url, model) as client:
        futures = [client.infer_batch(filled(0))]
        gated.wait_called()
        for number in range(3):
            with tracer.start_as_current_span("root") as span:
                contexts.append(span.get_span_context())
                futures.append(client.infer_batch(filled(number)))
        wait_for(lambda: pending(model) == 3, "the requests to wait")
        gated.gate.open()
        for future in futures:
            future.result(DEADLINE_S)
    for context in contexts:
        (span,) = collector.wait_for(CALLABLE, where=of(context))
        assert span.attributes["pytriton.requests"] == "3"
