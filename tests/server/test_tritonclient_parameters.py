"""Parameters, headers and plugins of tritonclient, and what of them reaches a callable."""

import base64
from importlib import import_module

import numpy as np
import pytest
import tritonclient.utils

from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.tritonclients import only_grpc, only_http

PARAMETERS = {
    "text": "zażółć \" ' {} \\",
    "empty": "",
    "negative": -3,
    "zero": 0,
    "odd": 2**53 + 1,  # no double has this value
    "largest": 2**63 - 1,
    "smallest": -(2**63),
    "yes": True,
    "no": False,
    "real": 0.1,
}

# Older releases leave some names, and the prefix, to the server.
RESERVED = getattr(tritonclient.utils, "TRITON_RESERVED_REQUEST_PARAMS", ["priority", "sequence_id", "sequence_start"])
RESERVED = [*RESERVED, getattr(tritonclient.utils, "TRITON_RESERVED_REQUEST_PARAMS_PREFIX", "sequence_") + "end"]


@pytest.fixture(scope="module")
def triton_config():
    pattern = "X-(Tenant|Level)|authorization"  # in any case
    with local_config(http_header_forward_pattern=pattern, grpc_header_forward_pattern=pattern) as config:
        yield config


@pytest.fixture(scope="module")
def log(bind):
    """A model that keeps the parameters of its last request."""

    class Log(dict):
        def __call__(self, requests):
            self.clear()
            self.update(requests[-1].parameters)
            return [{"y": request["x"]} for request in requests]

    log = Log()
    log.model = bind(log)
    return log


class Signature:
    """A plugin that adds a header and counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, request):
        self.calls += 1
        request.headers["x-tenant"] = "signed"


@pytest.fixture
def plugged(api):
    """``plugged(plugin)`` registers it until the end of the test."""
    yield api.client.register_plugin
    api.client.unregister_plugin()


def plugin_of(api, signature):
    """The plugin as tritonclient wants it: derived from its abstract class."""
    base = api.lib.InferenceServerClientPlugin
    return type("Plugin", (base,), {"__call__": lambda self, request: signature(request)})()


def test_parameters_arrive_with_their_types_and_values(api, log):
    api.infer(log.model, {"x": filled(1)}, parameters=PARAMETERS)
    assert log == PARAMETERS
    assert {name: type(value) for name, value in log.items()} == {
        name: type(value) for name, value in PARAMETERS.items()
    }


@pytest.mark.parametrize("name", RESERVED)
def test_names_of_the_server_are_refused_by_the_client(api, log, name):
    with api.client_refuses(f'"{name}" is a reserved parameter'):
        api.infer(log.model, {"x": filled(1)}, parameters={name: 1})


@only_http
@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_values_of_other_types_are_refused_by_the_server(api, log, value):
    with api.refuses("INVALID_ARGUMENT", "parameter 'odd' has invalid type"):
        api.infer(log.model, {"x": filled(1)}, parameters={"odd": value})


@only_grpc
@pytest.mark.parametrize("value", [None, [1], {"a": 1}, b"bytes"])
def test_values_of_other_types_are_refused_by_the_client(api, log, value):
    with api.client_refuses("is not supported"):
        api.infer(log.model, {"x": filled(1)}, parameters={"odd": value})


def test_headers_that_match_the_pattern_arrive_as_text(api, log):
    headers = {"x-tenant": "blue", "x-level": "3", "x-other": "not forwarded"}
    api.infer(log.model, {"x": filled(1)}, headers=headers, parameters={"mine": 1})
    assert log == {"mine": 1, "x-tenant": "blue", "x-level": "3"}


@only_http
def test_http_headers_match_in_any_case(api, log):
    api.infer(log.model, {"x": filled(1)}, headers={"X-TENANT": "blue"})
    assert {name.lower(): value for name, value in log.items()} == {"x-tenant": "blue"}


@only_grpc
def test_grpc_metadata_must_be_lower_case(api, log):
    with pytest.raises(Exception, match=r"(?i)metadata|illegal|invalid"):
        api.infer(log.model, {"x": filled(1)}, headers={"X-Tenant": "blue"})


def test_headers_are_taken_by_every_method(api, log):
    headers = {"x-tenant": "blue"}
    for method in ("is_server_live", "get_server_metadata", "get_model_repository_index", "get_log_settings"):
        assert api.call(method, headers=headers)
    for method in ("is_model_ready", "get_model_metadata", "get_model_config", "get_inference_statistics"):
        assert api.call(method, log.model, headers=headers)


def test_a_plugin_adds_a_header_to_every_call(api, log, plugged):
    signature = Signature()
    plugin = plugin_of(api, signature)
    plugged(plugin)
    assert api.client.plugin() is plugin
    assert api.call("is_server_live")
    api.infer(log.model, {"x": filled(1)})
    assert signature.calls == 2
    assert log == {"x-tenant": "signed"}


def test_a_client_has_one_plugin_at_most(api, plugged):
    with api.client_refuses("plugin"):
        api.client.unregister_plugin()
    plugged(plugin_of(api, Signature()))
    with api.client_refuses("already registered"):
        api.client.register_plugin(plugin_of(api, Signature()))


def test_a_removed_plugin_is_not_called_any_more(api, log):
    signature = Signature()
    api.client.register_plugin(plugin_of(api, signature))
    api.client.unregister_plugin()
    assert api.client.plugin() is None
    api.infer(log.model, {"x": filled(1)})
    assert (signature.calls, log) == (0, {})


def test_basic_authentication_arrives(api, log, plugged):
    plugged(import_module(f"tritonclient.{api.kind}.auth").BasicAuth("user", "pass word"))
    api.infer(log.model, {"x": np.ones((1, 1), np.float32)})
    assert log == {"authorization": "Basic " + base64.b64encode(b"user:pass word").decode()}
