"""The app behind the edge: its port, the server's, and its metrics."""

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
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.cases import infer, numbers
from tests.server.own_server import TENSORS, double
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, command_line, descendants, is_alive, wait_for
from tests.server.rest.apps import shout

pytestmark = pytest.mark.either_proxy

OTHER_ADDRESS = "127.0.0.2"
SECURITY = TritonSecurityConfig("the-token-of-operators")
OPERATOR = {"Authorization": f"Bearer {SECURITY.access_token}"}
INFER = infer("m", numbers())


@contextmanager
def apps(address: str = LOCALHOST, **options: Any) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of the server's port and of the app's, with the models ``shout`` and ``m``."""
    with (
        reserved_ports(1) as (port,),
        local_config(http_frontend="native") as config,
        Triton(
            config=config, security_config=SECURITY, rest=RestConfig(port=port, address=address, **options)
        ) as triton,
        httpx.Client(base_url=f"http://{LOCALHOST}:{config.http_port}", timeout=DEADLINE_S) as server,
        httpx.Client(base_url=f"http://{address}:{port}", timeout=DEADLINE_S) as app,
    ):
        triton.bind(shout)
        triton.bind("m", double, *TENSORS)
        triton.run()
        yield server, app


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with apps() as clients:
        yield clients


@pytest.mark.parametrize("which", [0, 1], ids=["server", "app"])
def test_the_routes_of_the_app_are_at_its_port_and_at_that_of_the_server(both, which):
    client = both[which]
    assert client.post("/predict/shout", json={"text": "hello"}).json() == {"result": "HELLO"}
    assert client.get("/docs").status_code == 200
    assert client.get("/openapi.json").json()["paths"]
    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("named", ["x-request-id", "close ,\tX-Request-ID\t, te", "keep-alive,x-request-id\t,"])
def test_a_header_that_a_client_names_as_one_of_the_connection_does_not_reach_the_application(both, named):
    def numbered(**headers: str) -> str:
        return both[0].get("/health/live", headers={"X-Request-ID": "seven", **headers}).headers["x-request-id"]

    assert numbered() == "seven"
    assert numbered(Connection=named) != "seven"


@pytest.mark.parametrize("target", ["/v2", "/v2/health/live", "/v2/models/m/ready", "/v2/repository/index"])
def test_the_server_is_at_its_own_port_alone(both, target):
    server, app = both
    method = "POST" if target.endswith("index") else "GET"
    assert app.request(method, target).status_code == 404
    assert server.request(method, target).status_code in (200, 403)


def test_an_app_for_one_address_alone_is_not_at_the_port_of_the_server():
    with apps(OTHER_ADDRESS) as (server, app):
        for target in ("/docs", "/health/ready", "/openapi.json"):
            assert server.get(target).status_code == 404
            assert app.get(target).status_code == 200
        assert server.post("/predict/shout", json={"text": "hello"}).status_code == 404
        assert app.post("/predict/shout", json={"text": "hello"}).json() == {"result": "HELLO"}
        assert server.get("/v2/health/live").status_code == 200


def test_a_port_of_the_app_that_is_taken_is_named_before_the_server_starts(free_config):
    with reserved_ports(1) as (port,), httpx.Client(timeout=DEADLINE_S) as client:
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
    """Requests for a model by status, in the metrics of the app."""
    pattern = rf'^pytriton_rest_requests_total{{route="/predict/{{model}}",model="{model}",status="(\d+)"}} (\d+)$'
    return {
        status: int(count)
        for status, count in re.findall(pattern, client.get("/metrics", headers=OPERATOR).text, re.MULTILINE)
    }


def test_predictions_that_the_edge_answers_are_in_the_metrics_of_the_app(both):
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
    page = both[1].get("/metrics", headers=OPERATOR).text
    assert page.count('pytriton_rest_request_duration_seconds_count{route="/predict/{model}",model="shout"}') == 1
    assert "recent" not in page


def test_the_pages_have_the_latencies_of_all_requests_to_a_model(both):
    server, app = both
    for _ in range(5):
        assert server.post(INFER.target, content=INFER.body).status_code == 200
    recent = app.get("/pages/batches", params={"model": "m"}, headers=OPERATOR).json()["requests"]
    assert [each["status"] for each in recent[-5:]] == [200] * 5
    assert all(0 < each["duration"] < 60_000 for each in recent)
    assert [each["end"] for each in recent] == sorted(each["end"] for each in recent)


def test_the_counts_of_a_server_that_was_killed_go_on():
    with apps() as (server, app):
        assert server.post("/predict/shout", json={"text": "hello"}).status_code == 200
        wait_for(lambda: counted(app, "shout") == {"200": 1}, "the request")
        killed = next(pid for pid in descendants(os.getpid()) if command_line(pid)[0].endswith("tritonserver"))
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not is_alive(killed), "its end")

        assert app.post("/predict/shout", json={"text": "hello"}).status_code == 200  # it waits for the next server
        wait_for(lambda: counted(app, "shout").get("200") == 2, "the request")
