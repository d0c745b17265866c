"""What the clouds say in the environment, and what the server demands of it."""

import logging

import pytest

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.server.clouds import check_clouds, on_vertex_ai

ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
CONTAINER = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "9090", **ROUTES}
VERTEX_AI = TritonConfig(allow_vertex_ai=True)


def test_elsewhere_a_configuration_stays_as_it_is():
    config = TritonConfig(http_port=9000)
    assert on_vertex_ai(config, {}) == config
    assert on_vertex_ai(config, {"AIP_MODE": "TRAINING"}) == config


def test_in_a_container_its_endpoint_is_open_and_http_to_the_machine_alone():
    config = on_vertex_ai(TritonConfig(), CONTAINER)
    assert (config.allow_vertex_ai, config.vertex_ai_port) == (True, 9090)
    assert (config.allow_http, config.http_address) == (True, "127.0.0.1")
    assert config.allow_grpc is False


def test_in_a_container_without_http_it_is_grpc_that_is_open():
    config = on_vertex_ai(TritonConfig(allow_http=False), CONTAINER)
    assert (config.allow_http, config.allow_grpc, config.grpc_address) == (False, True, "127.0.0.1")


def test_in_a_container_what_the_user_says_wins():
    chosen = TritonConfig(
        allow_vertex_ai=False, vertex_ai_port=1, allow_http=True, allow_grpc=True, http_address="0.0.0.0"
    )
    assert on_vertex_ai(chosen, CONTAINER) == chosen


def test_a_port_that_is_no_number_is_refused():
    with pytest.raises(PyTritonValidationError, match="AIP_HTTP_PORT in the environment is 'http'"):
        on_vertex_ai(TritonConfig(), {"AIP_HTTP_PORT": "http"})


@pytest.mark.parametrize(
    ("config", "models", "environment"),
    [
        (TritonConfig(), [], {}),
        (VERTEX_AI, ["m"], ROUTES),
        (TritonConfig(allow_vertex_ai=True, vertex_ai_default_model="m"), ["n", "m"], ROUTES),
    ],
)
def test_what_the_server_can_open_passes(config, models, environment):
    check_clouds(config, models, environment)


@pytest.mark.parametrize("route", ROUTES)
def test_a_missing_route_is_named_with_an_example(route):
    with pytest.raises(PyTritonValidationError, match=f"such as {route}={ROUTES[route]};"):
        check_clouds(VERTEX_AI, ["m"], {**ROUTES, route: ""})


@pytest.mark.parametrize("models", [[], ["m", "n"]])
def test_a_default_model_has_to_be_named_unless_there_is_but_one(models):
    with pytest.raises(PyTritonValidationError, match=f"loads {len(models)} models .*vertex_ai_default_model"):
        check_clouds(VERTEX_AI, models, ROUTES)


def test_sagemaker_without_a_model_is_a_warning(caplog):
    check_clouds(TritonConfig(allow_sagemaker=True), [], {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m"})
    assert not caplog.records
    check_clouds(TritonConfig(allow_sagemaker=True), [], {})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME" in caplog.text
