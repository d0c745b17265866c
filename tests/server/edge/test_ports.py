"""The ports of metrics, of Vertex AI and of SageMaker, which the edge serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pytriton.config import TritonConfig
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.cases import FLOATS, Tensor, get, infer, numbers, post
from tests.server.edge.models import bind_models
from tests.server.edge.wire import Answer, Client, Request
from tests.server.own_server import server_of
from tests.server.ports import reserved_ports

pytestmark = pytest.mark.either_proxy

MIB = 2**20
TOKEN = "secret-of-these-tests"
BODY = infer("m", numbers()).body
REDIRECT = "X-Vertex-Ai-Triton-Redirect"
VERTEX_AI = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
SAGEMAKER = "application/vnd.sagemaker-triton.binary+json;json-header-size="


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    with pytest.MonkeyPatch.context() as patch, reserved_ports(2) as (vertex_ai, sagemaker):
        patch.setenv("AIP_PREDICT_ROUTE", "/predict")
        patch.setenv("AIP_HEALTH_ROUTE", "/health")
        patch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "pair")
        with local_config(http_frontend="native", allow_vertex_ai=True, allow_sagemaker=True) as config:
            config = replace(
                config, vertex_ai_port=vertex_ai, sagemaker_port=sagemaker, vertex_ai_default_model="echo_FP32"
            )
            with Triton(config=config, security_config=TritonSecurityConfig(TOKEN)) as triton:
                bind_models(triton, tmp_path_factory.mktemp("models"))
                triton.run()
                yield config


@pytest.fixture(autouse=True)
def survivor(config: TritonConfig) -> Iterator[None]:
    pid = server_of(config)
    yield
    assert server_of(config) == pid


def ask(port: int | None, request: Request) -> Answer:
    client = Client((LOCALHOST, int(port or 0)))
    try:
        return client.ask(request)
    finally:
        client.close()


# Metrics


def test_the_metrics_are_those_of_the_server(config):
    page = ask(config.metrics_port, get("/metrics"))
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/plain")
    assert b"nv_inference_request_success" in page.data
    assert ask(config.metrics_port, Request("HEAD", "/metrics")).status == 200
    packed = ask(config.metrics_port, Request("GET", "/metrics", b"", {"Accept-Encoding": "gzip"}))
    assert packed.headers["content-encoding"] == "gzip"
    assert b"nv_inference_request_success" in packed.data


@pytest.mark.parametrize("target", ["/", "/v2", "/v2/health/live", "/metrics/", "/predict", "/ping"])
def test_the_port_of_metrics_has_nothing_else(config, target):
    assert ask(config.metrics_port, get(target)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_metrics_can_only_be_read(config, method):
    assert ask(config.metrics_port, Request(method, "/metrics")).status == 405


@pytest.mark.parametrize("head", [f"Content-Length: {400 * MIB}", "Transfer-Encoding: chunked"])
def test_the_port_of_metrics_takes_no_body(config, head):
    client = Client((LOCALHOST, int(config.metrics_port or 0)))
    client.send(f"POST /metrics HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode())
    answer = client.answer("POST")
    assert (answer.status, answer.keeps_alive) == (413, False)
    client.close()


def test_the_port_of_metrics_takes_few_headers(config):
    answer = ask(config.metrics_port, Request("GET", "/metrics", b"", {f"x-{number}": "" for number in range(300)}))
    assert answer.status == 431


# Clouds


def test_vertex_ai_predicts_and_tells_its_health(config):
    assert ask(config.vertex_ai_port, get("/health")).status == 200
    assert ask(config.vertex_ai_port, post("/predict", BODY)).json["outputs"][0]["data"] == [1.5, -2.0, 0.1]
    for target in ("/", "/metrics", "/v2", "/v2/health/ready", "/v2/repository/index", "/predict/"):
        assert ask(config.vertex_ai_port, get(target)).status == 404
    assert ask(config.vertex_ai_port, get("/predict")).status == 405
    assert ask(config.vertex_ai_port, post("/health", b"")).status == 405


def test_sagemaker_invokes_its_model_and_loads_none(config):
    assert ask(config.sagemaker_port, get("/ping")).status == 200
    array = np.array([[3, 4]], np.int32)
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 2], "data": array.flatten().tolist()} for name in ("a", "b")
    ]
    answer = ask(config.sagemaker_port, post("/invocations", {"inputs": inputs}))
    assert answer.json["outputs"][0]["data"] == [6, 8]
    for target in ("/models", "/models/m", "/models/m/invoke"):
        for method in ("GET", "POST", "DELETE"):
            assert ask(config.sagemaker_port, Request(method, target, b"{}")).status == 501
    for target in ("/", "/v2", "/v2/repository/index", "/metrics"):
        assert ask(config.sagemaker_port, get(target)).status == 404


INTEGERS = np.array([[3, 4]], np.int32)
PAIR = [Tensor(name, "INT32", INTEGERS, binary=True) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("port", "target", "kind", "inputs", "result"),
    [
        ("vertex_ai_port", "/predict", VERTEX_AI, [numbers(binary=True)], FLOATS),
        ("sagemaker_port", "/invocations", SAGEMAKER, PAIR, 2 * INTEGERS),
    ],
)
def test_the_size_of_json_is_a_part_of_the_content_type(config, port, target, kind, inputs, result):
    request = infer("m", *inputs, parameters={"binary_data_output": True})
    size = int(next(iter(request.headers.values())))
    answer = ask(getattr(config, port), Request("POST", target, request.body, {"Content-Type": f"{kind}{size}"}))
    assert answer.status == 200, answer.error
    found = answer.headers["content-type"]
    assert found.startswith(kind)
    start = int(found.removeprefix(kind))
    assert json.loads(answer.data[:start])["outputs"][0]["shape"] == [*result.shape]
    assert answer.data[start:].startswith(result.tobytes())
    for wrong in ("", "-1", "x", "1e3", str(len(request.body) + 1), str(2**64)):
        refused = ask(getattr(config, port), Request("POST", target, request.body, {"Content-Type": f"{kind}{wrong}"}))
        assert refused.status == 400


PROTECTED = [
    "v2/repository/index",
    "/v2/repository/models/x/load",
    "v2/systemsharedmemory/region/r/register",
    "v2/logging",
]


@pytest.mark.parametrize("target", PROTECTED)
def test_a_redirect_of_vertex_ai_needs_the_token_of_where_it_leads(config, target):
    request = Request("POST", "/predict", b"{}", {REDIRECT: target})
    assert ask(config.vertex_ai_port, request).status == 403
    for token in ("", "wrong"):
        wrong = {**request.headers, "triton-access-token": token}
        assert ask(config.vertex_ai_port, replace(request, headers=wrong)).status == 403
    right = {**request.headers, "triton-access-token": TOKEN}
    assert ask(config.vertex_ai_port, replace(request, headers=right)).status not in (403, 404)


def test_a_redirect_of_vertex_ai_leads_to_open_paths(config):
    redirected = Request("POST", "/predict", BODY, {REDIRECT: "v2/models/echo_FP32/infer"})
    assert ask(config.vertex_ai_port, redirected).json["model_name"] == "echo_FP32"
    for target in (
        "v3",
        "metrics",
        "//v2/repository/index",
        "../v2/logging",
        "v2/../v2/logging",
        "v2/models/pair%2finfer",
    ):
        assert ask(config.vertex_ai_port, Request("POST", "/predict", BODY, {REDIRECT: target})).status in (404, 405)
