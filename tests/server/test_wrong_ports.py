"""A client whose URL has the port of something else is told which one is right."""

import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
    PyTritonClientUnreachableError,
)
from tests.server.processes import wait_for_error
from tests.server.rest.ways import app_of

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module", params=["native", "own process"])
def app(request):
    with app_of(request.param) as app:
        yield app


@pytest.mark.parametrize(
    ("scheme", "port", "hint"),
    [
        ("http", "grpc_port", "the URL begins with grpc://"),
        ("grpc", "http_port", "the URL begins with http://"),
        ("grpc", "metrics_port", "the URL begins with http://"),
        ("http", "app", "which is 8000 by default"),
        ("grpc", "app", "the URL begins with http://"),
    ],
)
def test_the_error_says_which_port_is_right(app, scheme, port, hint):
    number = app.client.base_url.port if port == "app" else getattr(app.triton._config, port)
    with (
        ModelClient(f"{scheme}://127.0.0.1:{number}", "any") as client,
        pytest.raises(PyTritonClientUnreachableError, match=hint) as caught,
    ):
        client.infer_sample(1)
    # Triton's own HTTP endpoint closes connections of gRPC without an answer, as a server that starts may.
    is_silent = app.way == "own process" and scheme == "grpc" and port != "app"
    assert caught.value.message.startswith("no Triton server answers: ") != is_silent  # at once, not after a wait

    def wait(timeout_s):
        with ModelClient(f"{scheme}://127.0.0.1:{number}", "any", init_timeout_s=timeout_s) as client:
            client.infer_sample(1)

    wait_for_error(wait, PyTritonClientTimeoutError, hint)


def test_the_port_of_metrics_is_told_at_once(app):
    url = f"http://127.0.0.1:{app.triton._config.metrics_port}"
    with (
        ModelClient(url, "any") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="which is 8000 by default, and not that of metrics"),
    ):
        client.infer_sample(1)
