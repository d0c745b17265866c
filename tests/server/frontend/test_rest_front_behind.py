"""The REST front behind the native front end: its port, the server's, and its metrics."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from pytriton.exceptions import PyTritonServerError
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.frontend.cases import infer, numbers
from tests.server.own_server import TENSORS, double
from tests.server.ports import reserved_ports
from tests.server.processes import command_line, descendants, wait_for
from tests.server.rest.fronts import shout

pytestmark = pytest.mark.either_proxy

OTHER_ADDRESS = "127.0.0.2"
INFER = infer("m", numbers())


@contextmanager
def fronts(address: str = LOCALHOST, **options: Any) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of the server's port and of the REST front's, with the models ``shout`` and ``m``."""
    with (
        reserved_ports(1) as (port,),
        local_config(http_frontend="native") as config,
        Triton(config=config, rest=RestConfig(port=port, address=address, **options)) as triton,
        httpx.Client(base_url=f"http://{LOCALHOST}:{config.http_port}") as server,
        httpx.Client(base_url=f"http://{address}:{port}") as front,
    ):
        triton.bind(shout)
        triton.bind("m", double, *TENSORS)
        triton.run()
        yield server, front


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with fronts() as clients:
        yield clients


@pytest.mark.parametrize("which", [0, 1], ids=["server", "front"])
def test_the_routes_of_the_front_are_at_its_port_and_at_that_of_the_server(both, which):
    client = both[which]
    assert client.post("/predict/shout", json={"text": "hello"}).json() == {"result": "HELLO"}
    assert client.get("/docs").status_code == 200
    assert client.get("/openapi.json").json()["paths"]
    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("target", ["/v2", "/v2/health/live", "/v2/models/m/ready", "/v2/repository/index"])
def test_the_server_is_at_its_own_port_alone(both, target):
    server, front = both
    method = "POST" if target.endswith("index") else "GET"
    assert front.request(method, target).status_code == 404
    assert server.request(method, target).status_code in (200, 403)


def test_a_front_for_one_address_alone_is_not_at_the_port_of_the_server():
    with fronts(OTHER_ADDRESS) as (server, front):
        for target in ("/docs", "/health/ready", "/openapi.json"):
            assert server.get(target).status_code == 404
            assert front.get(target).status_code == 200
        assert server.post("/predict/shout", json={"text": "hello"}).status_code == 404
        assert front.post("/predict/shout", json={"text": "hello"}).json() == {"result": "HELLO"}
        assert server.get("/v2/health/live").status_code == 200


def test_a_port_of_the_front_that_is_taken_is_named_before_the_server_starts(free_config):
    with reserved_ports(1) as (port,), httpx.Client() as client:
        rest = RestConfig(port=port, address=LOCALHOST)
        free_config.http_frontend = "native"
        with Triton(config=free_config, rest=rest) as triton, local_config() as other:
            triton.run()
            second = Triton(config=other, rest=rest)
            with pytest.raises(PyTritonServerError, match=f"{port}: Address already in use. Choose another"):
                second.run()
            second.stop()
            assert client.get(f"http://{LOCALHOST}:{port}/health/live").status_code == 200


def counted(client: httpx.Client, model: str) -> dict[str, float]:
    """Requests for a model by status, in the metrics of the front."""
    pattern = rf'^pytriton_rest_requests_total{{route="/predict/{{model}}",model="{model}",status="(\d+)"}} (\d+)$'
    return {status: int(count) for status, count in re.findall(pattern, client.get("/metrics").text, re.MULTILINE)}


def test_predictions_that_the_front_end_answers_are_in_the_metrics_of_the_front(both):
    for client in both:
        before = counted(client, "shout").get("200", 0)
        for _ in range(3):
            assert client.post("/predict/shout", json={"text": "hello"}).status_code == 200
        wait_for(lambda client=client, before=before: counted(client, "shout")["200"] == before + 3, "the requests")
    invalid = counted(both[0], "shout").get("422", 0)
    assert both[0].post("/predict/shout", json={"text": 3}).status_code == 422
    assert both[0].post("/predict/nobody", json={"text": "3"}).status_code == 404
    wait_for(lambda: counted(both[0], "shout")["422"] == invalid + 1, "the request")
    assert counted(both[0], "nobody") == {}
    page = both[1].get("/metrics").text
    assert page.count('pytriton_rest_request_duration_seconds_count{route="/predict/{model}",model="shout"}') == 1
    assert "recent" not in page


def test_the_pages_have_the_latencies_of_all_requests_to_a_model(both):
    server, front = both
    for _ in range(5):
        assert server.post(INFER.target, content=INFER.body).status_code == 200
    recent = front.get("/pages/batches", params={"model": "m"}).json()["requests"]
    assert [each["status"] for each in recent[-5:]] == [200] * 5
    assert all(0 < each["duration"] < 60_000 for each in recent)
    assert [each["end"] for each in recent] == sorted(each["end"] for each in recent)


def test_the_counts_of_a_server_that_was_killed_go_on():
    with fronts() as (server, front):
        assert server.post("/predict/shout", json={"text": "hello"}).status_code == 200
        wait_for(lambda: counted(front, "shout") == {"200": 1}, "the request")
        os.kill(
            next(pid for pid in descendants(os.getpid()) if command_line(pid)[0].endswith("tritonserver")),
            signal.SIGKILL,
        )

        assert front.post("/predict/shout", json={"text": "hello"}).status_code == 200  # it waits for the next server
        wait_for(lambda: counted(front, "shout").get("200") == 2, "the request")
