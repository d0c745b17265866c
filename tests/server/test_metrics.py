"""Metrics of callables, on a page beside the server's."""

import asyncio
import json
import re
from pathlib import Path
from urllib.request import urlopen

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonServerError
from pytriton.rest.metrics import AppMetrics
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.gated import Gated
from tests.server.own_server import address, double
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.generators import count_up

pytestmark = pytest.mark.either_proxy

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "pytriton.json"


@pytest.fixture(scope="module")
def registry():
    return prometheus_client.CollectorRegistry()


@pytest.fixture(scope="module")
def rows_seen(registry):
    return prometheus_client.Counter("rows_seen", "Rows", ["model"], registry=registry)


@pytest.fixture(scope="module")
def page(triton, registry):
    return triton.serve_metrics(0, registry=registry)


@pytest.fixture(scope="module")
def grpc_address(triton_config):
    return address(triton_config, "grpc")


def values(page, model):
    """Values of our metrics of a model, by name, and the class of errors if there is one."""
    with urlopen(page, timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("model") == model and "le" not in sample.labels:
                key = (sample.name, sample.labels["error"]) if "error" in sample.labels else sample.name
                found[key] = sample.value
    return found


def answered(page, model, calls):
    """The same, once so many calls have ended: a request is answered before it is counted."""
    wait_for(lambda: values(page, model).get("pytriton_callable_seconds_count") == calls, "the calls to be counted")
    return values(page, model)


def test_calls_are_counted_and_measured(bind, url, page):
    model = bind(double, max_batch_size=8)
    with ModelClient(url, model) as client:
        for rows in (1, 3):
            client.infer_batch(filled(1, rows=rows))
    found = answered(page, model, 2)
    assert found["pytriton_callable_seconds_sum"] > 0
    assert (found["pytriton_batch_requests_count"], found["pytriton_batch_requests_sum"]) == (2, 2)
    assert (found["pytriton_batch_rows_count"], found["pytriton_batch_rows_sum"]) == (2, 4)
    assert (found["pytriton_in_flight_batches"], found["pytriton_waiting_batches"]) == (0, 0)


def test_merged_requests_are_one_call_and_it_is_in_flight(bind, url, page, pending):
    gated = Gated()
    model = bind(gated, max_batch_size=8)
    with FuturesModelClient(url, model) as client:
        futures = [client.infer_batch(filled(0))]
        gated.wait_called()
        assert values(page, model)["pytriton_in_flight_batches"] == 1
        futures += [client.infer_batch(filled(number)) for number in range(4)]
        wait_for(lambda: pending(model) == 4, "the requests to wait")
        gated.gate.open()
        for future in futures:
            future.result(DEADLINE_S)
    found = answered(page, model, 2)
    assert found["pytriton_batch_requests_sum"] == 5
    assert found["pytriton_in_flight_batches"] == 0


def test_failed_requests_are_counted_by_their_class(bind, url, page):
    def failing(requests):
        if requests[0]["x"][0, 0] < 0:
            return [KeyError("one") for _ in requests]
        raise LookupError("all")

    model = bind(failing)
    with ModelClient(url, model) as client:
        for number in (1, 1, -1):
            with pytest.raises(Exception, match=r"LookupError|KeyError"):
                client.infer_batch(filled(number))
    found = answered(page, model, 3)
    assert found["pytriton_failed_requests_total", "LookupError"] == 2
    assert found["pytriton_failed_requests_total", "KeyError"] == 1


def test_streams_and_coroutines_are_measured_to_their_end(bind, url, grpc_address, page):
    async def doubled(requests):
        await asyncio.sleep(0)
        return double(requests)

    async def infer(model):
        async with AsyncioModelClient(url, model) as client:
            await client.infer_batch(filled(1))

    stream, coroutine = bind(count_up, decoupled=True), bind(doubled)
    with DecoupledModelClient(grpc_address, stream) as client:
        assert len([*client.infer_batch(filled(3))]) == 3
    asyncio.run(infer(coroutine))
    for model in (stream, coroutine):
        found = answered(page, model, 1)
        assert (found["pytriton_in_flight_batches"], found["pytriton_waiting_batches"]) == (0, 0)


def test_the_calls_of_worker_processes_are_counted_too(bind, url, page):
    def factory():
        calls = []

        def infer(requests):
            calls.append(requests)
            if len(calls) == 3:
                raise LookupError("no such row")
            return [{"y": request["x"]} for request in requests]

        return infer

    model = bind(Processes(factory, count=1))
    with ModelClient(url, model) as client:
        for _ in range(2):
            client.infer_batch(filled(1, rows=3))
        with pytest.raises(PyTritonClientInferenceServerError, match="no such row"):
            client.infer_batch(filled(1))
    found = answered(page, model, 3)
    assert found["pytriton_batch_rows_sum"] == 7
    assert found["pytriton_failed_requests_total", "LookupError"] == 1
    assert (found["pytriton_in_flight_batches"], found["pytriton_waiting_batches"]) == (0, 0)


def test_what_callables_make_themselves_is_on_the_page(bind, url, page, rows_seen):
    def counting(requests):
        rows_seen.labels(model).inc(sum(len(request["x"]) for request in requests))
        return double(requests)

    model = bind(counting)
    with ModelClient(url, model) as client:
        client.infer_batch(filled(1, rows=3))
    assert values(page, model)["rows_seen_total"] == 3


def test_the_dashboard_asks_for_metrics_that_exist(bind, url, page, triton_config):
    def failing(requests):
        raise ValueError("no")

    with ModelClient(url, bind(failing)) as client, pytest.raises(Exception, match="no"):
        client.infer_batch(filled(1))
    there = set()
    for each in (page, f"http://127.0.0.1:{triton_config.metrics_port}/metrics"):
        with urlopen(each, timeout=DEADLINE_S) as answer:
            there |= set(re.findall(r"^(\w+)[{ ]", answer.read().decode(), re.MULTILINE))
    app = AppMetrics()
    app.begin()
    app.end("/predict/{model}", "m", 200, 0.1, 10, 20)
    there |= set(re.findall(r"^(\w+)[{ ]", app.text(), re.MULTILINE))
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked = set(re.findall(r"\b(?:nv|pytriton)_\w+", " ".join(expressions)))
    assert len(asked) > 15
    assert asked <= there
    assert {panel["id"] for panel in dashboard["panels"]} == {*range(1, len(dashboard["panels"]) + 1)}


def test_a_second_page_is_refused(triton, page):
    with pytest.raises(PyTritonInvalidOperationError, match=page):
        triton.serve_metrics(0)


def test_a_port_in_use_is_an_error_and_another_one_may_follow(free_config):
    with reserved_ports(1) as (port,), Triton(config=free_config) as triton:
        with pytest.raises(PyTritonServerError, match=f"{free_config.http_port}.*choose another"):
            triton.serve_metrics(free_config.http_port)
        url = triton.serve_metrics(port)
        assert url == f"http://127.0.0.1:{port}/metrics"
        with urlopen(url, timeout=DEADLINE_S) as answer:
            assert b"python_info" in answer.read()  # of the program's own registry
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=DEADLINE_S)
