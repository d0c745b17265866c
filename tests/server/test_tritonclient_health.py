"""tritonclient asks how the server and its models are, and what they are."""

import asyncio
import json
import socket
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.model_config.parser import ModelConfigParser
from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.proxies import IS_NATIVE
from tests.server.tritonclients import only, only_aio, only_grpc, only_http

pytestmark = pytest.mark.either_proxy

EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "cuda_shared_memory",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
    "system_shared_memory",
    "trace",
]
INPUTS = [Tensor(name="x", shape=(-1,), dtype=np.float32), Tensor(name="n", shape=(2, 3), dtype=np.int64)]
OUTPUTS = [Tensor(name="y", shape=(-1,), dtype=bytes)]
GETTERS = ["get_model_metadata", "get_model_config", "get_inference_statistics"]


@pytest.fixture(scope="module")
def triton_config():
    with local_config(id="conformance") as config:
        yield config


def echo(requests):
    return [{"y": request["x"]} for request in requests]


@pytest.fixture(scope="module")
def batching(bind):
    batcher = DynamicBatcher(max_queue_delay_microseconds=100, preferred_batch_size=[2, 4])
    return bind([echo, echo], INPUTS, OUTPUTS, max_batch_size=8, batcher=batcher)


@pytest.fixture(scope="module")
def versions(triton):
    for version in (1, 3):
        triton.bind("versions", echo, INPUTS, OUTPUTS, version, ModelConfig(batching=False))
    return "versions"


def test_the_server_is_live_and_ready(api):
    assert api.call("is_server_live") is True
    assert api.call("is_server_ready") is True


def test_a_bound_model_is_ready_in_its_versions_alone(api, versions):
    assert api.call("is_model_ready", versions) is True
    assert [api.call("is_model_ready", versions, version) for version in "123"] == [True, False, True]
    assert api.call("is_model_ready", "unknown") is False


def test_the_server_tells_its_id_version_and_extensions(api):
    metadata = api.call("get_server_metadata")
    assert metadata["name"] == "conformance"
    assert metadata["version"].startswith("2.")
    assert set(EXTENSIONS) <= set(metadata["extensions"])


def test_metadata_of_a_batching_model_have_the_batch_axis(api, batching):
    metadata = api.call("get_model_metadata", batching)
    assert metadata == {
        "name": batching,
        "versions": ["1"],
        "platform": "pytriton" if IS_NATIVE else "python",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, -1]},
            {"name": "n", "datatype": "INT64", "shape": [-1, 2, 3]},
        ],
        "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1, -1]}],
    }


def test_metadata_of_a_model_without_batching_have_its_shapes_and_all_versions(api, versions):
    metadata = api.call("get_model_metadata", versions)
    assert sorted(metadata["versions"]) == ["1", "3"]
    assert api.call("get_model_metadata", versions, "1")["versions"] == ["1"]
    assert [tensor["shape"] for tensor in metadata["inputs"] + metadata["outputs"]] == [[-1], [2, 3], [-1]]


def test_the_configuration_is_the_bound_one(api, batching):
    config = api.call("get_model_config", batching)
    assert config["name"] == batching
    assert config["max_batch_size"] == 8
    assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["input"]] == [
        ("x", "TYPE_FP32", [-1]),
        ("n", "TYPE_INT64", [2, 3]),
    ]
    assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["output"]] == [
        ("y", "TYPE_STRING", [-1])
    ]
    batcher = ModelConfigParser.from_dict(config).batcher
    assert isinstance(batcher, DynamicBatcher)
    assert batcher.preferred_batch_size == [2, 4]
    assert batcher.max_queue_delay_microseconds == 100
    assert [(group["count"], group["kind"]) for group in config["instance_group"]] == [(2, "KIND_CPU")]


def test_the_configuration_tells_nothing_about_this_machine(api, triton, batching):
    text = json.dumps(api.call("get_model_config", batching))
    assert str(triton._workspace.path) not in text
    assert "/" not in text


def test_the_configuration_of_a_model_without_batching_has_no_batcher(api, versions):
    config = api.call("get_model_config", versions, "3")
    assert config.get("max_batch_size", 0) == 0
    assert "dynamic_batching" not in config


def test_the_index_lists_every_bound_model_as_ready(api, batching, versions):
    index = api.call("get_model_repository_index")
    found = {(entry["name"], entry["version"], entry["state"]) for entry in index}
    assert {(batching, "1", "READY"), (versions, "1", "READY"), (versions, "3", "READY")} <= found


@pytest.mark.parametrize("method", GETTERS)
@pytest.mark.parametrize("version", ["", "7"])
def test_unknown_models_and_versions_are_refused(api, batching, method, version):
    status = "INVALID_ARGUMENT" if method == "get_inference_statistics" else "NOT_FOUND"
    with api.refuses(status):
        api.call(method, batching if version else "unknown", version)


@pytest.mark.parametrize("method", ["is_model_ready", "get_model_metadata", "get_inference_statistics"])
def test_a_version_that_is_no_text_is_refused_by_the_client(api, batching, method):
    with api.client_refuses("version must be a string"):
        api.call(method, batching, 1)


@only_grpc
def test_messages_say_the_same_as_their_json(api, batching):
    def both(method, *arguments):
        return api.call(method, *arguments, as_json=False), api.call(method, *arguments)

    message, reply = both("get_server_metadata")
    assert (message.name, list(message.extensions)) == (reply["name"], reply["extensions"])
    message, reply = both("get_model_metadata", batching)
    assert [list(tensor.shape) for tensor in message.inputs] == [tensor["shape"] for tensor in reply["inputs"]]
    message, reply = both("get_model_config", batching)
    assert (message.config.name, message.config.max_batch_size) == (reply["name"], reply["max_batch_size"])
    message, reply = both("get_model_repository_index")
    assert [model.name for model in message.models] == [model["name"] for model in reply]
    message, reply = both("get_inference_statistics", batching)
    assert [entry.name for entry in message.model_stats] == [entry["name"] for entry in reply["model_stats"]]
    for kind in ("system", "cuda"):
        message, reply = both(f"get_{kind}_shared_memory_status")
        assert (len(message.regions), reply) == (0, [])
    message, reply = both("get_log_settings")
    assert message.settings["log_info"].bool_param == reply["log_info"]
    message, reply = both("get_trace_settings")
    assert list(message.settings["trace_level"].value) == reply["trace_level"]


def test_without_a_server_methods_raise(api):
    with reserved_ports(1) as (port,), type(api)(api.kind, f"{LOCALHOST}:{port}") as client:
        for method in ("is_server_live", "is_server_ready"):
            with pytest.raises((OSError, InferenceServerException)) as raised:
                client.call(method)
            if not api.is_http:
                assert raised.value.status() == "StatusCode.UNAVAILABLE"


@only_grpc
@pytest.mark.parametrize("method", ["is_server_live", "is_server_ready", "get_server_metadata"])
def test_the_timeout_of_a_call_is_kept_when_the_server_does_not_answer(api, method):
    with (
        socket.create_server((LOCALHOST, 0)) as silent,
        type(api)(api.kind, f"{LOCALHOST}:{silent.getsockname()[1]}") as client,
        client.refuses("DEADLINE_EXCEEDED", "Deadline Exceeded"),
    ):
        client.call(method, client_timeout=0.05)


@only_http
def test_the_timeout_of_a_client_is_kept_when_the_server_does_not_answer(api):
    name = "conn_timeout" if api.is_aio else "network_timeout"
    with (
        socket.create_server((LOCALHOST, 0)) as silent,
        type(api)(api.kind, f"{LOCALHOST}:{silent.getsockname()[1]}", **{name: 0.05}) as client,
        pytest.raises(asyncio.TimeoutError if api.is_aio else socket.timeout),
    ):
        client.call("is_server_live")


def test_a_verbose_client_prints_and_gets_the_same(api, batching):
    with redirect_stdout(StringIO()) as output, api.other(verbose=True) as client:
        assert client.call("get_model_metadata", batching) == api.call("get_model_metadata", batching)
        assert client.infer(batching, {"x": filled(1), "n": np.ones((1, 2, 3), np.int64)})["y"].shape == (1, 4)
    assert batching in output.getvalue()


@only_http
def test_query_parameters_that_the_server_does_not_know_are_ignored(api, batching):
    assert api.call("is_server_ready", query_params={"a": 1, "list": ["b", "c d"]}) is True
    assert api.call("get_model_metadata", batching, query_params={"a": "b&c"})["name"] == batching


@only_http
def test_a_header_that_the_client_cannot_honour_is_refused_by_it(api):
    with api.client_refuses("Transfer-Encoding"):
        api.call("is_server_live", headers={"transfer-encoding": "chunked"})


@only_http
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_with_a_scheme_is_refused_by_the_client(api, scheme):
    client = object.__new__(api.lib.InferenceServerClient)
    client._closed = True  # else its __del__ fails
    with api.client_refuses("should not include the scheme"):
        client.__init__(f"{scheme}://{LOCALHOST}:8000")


@pytest.mark.parametrize("api", ["http.aio", "grpc", "grpc.aio"], indirect=True)
def test_a_closed_client_does_not_call_any_more(api):
    with api.other() as client:
        assert client.call("is_server_live") is True
        client.call("close")
        with pytest.raises(Exception, match=r"(?i)closed"):
            client.call("is_server_live")


@only("http")
def test_closing_a_client_twice_does_nothing(api):
    with api.other() as client:
        assert client.call("is_server_live") is True
        client.call("close")


@only_aio
def test_an_asynchronous_client_is_an_asynchronous_context(api):
    async def live(address):
        async with api.lib.InferenceServerClient(address) as client:
            return await client.is_server_live()

    assert api.loop.run(live(api.address)) is True


@pytest.mark.parametrize("api", ["http", "grpc"], indirect=True)
def test_a_synchronous_client_is_a_context(api):
    with api.lib.InferenceServerClient(api.address) as client:
        assert client.is_server_live() is True
