"""tritonclient loads and unloads models of a host that goes on living."""

import json

import pytest

from pytriton.decorators import batch
from tests.server.arrays import filled
from tests.server.gated import Gated
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import native_part_only
from tests.server.tritonclients import Answer

pytestmark = pytest.mark.either_proxy

UPLOADED = b"""
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("from the uploaded file")
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""
CONFIG = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@batch
def double(x):
    return [x * 2]


@pytest.fixture(scope="module")
def kept(bind):
    """Stays loaded."""
    return bind(double)


@pytest.fixture
def model(bind):
    """Belongs to one test."""
    return bind(double, max_batch_size=8)


def entry(api, model):
    return next((found for found in api.call("get_model_repository_index") if found["name"] == model), None)


def answer(api, model):
    return api.infer(model, {"x": filled(2)})["y"][0, 0]


def test_an_unloaded_model_is_gone_and_can_be_loaded_again(api, triton, kept, model):
    assert api.call("unload_model", model) is None  # returns before the model is gone
    assert api.call("is_model_ready", model) is False
    with api.refuses("NOT_FOUND", "no available versions"):
        api.infer(model, {"x": filled(2)})
    wait_for(lambda: entry(api, model)["state"] == "UNAVAILABLE", "the model to be unloaded")
    assert entry(api, model)["reason"] == "unloaded"
    wait_for(lambda: api.call("is_server_ready"), "the server to be ready without it")
    assert answer(api, kept) == 4
    assert triton.is_alive()
    assert api.call("load_model", model) is None
    assert api.call("is_model_ready", model) is True
    assert entry(api, model)["state"] == "READY"
    assert answer(api, model) == 4


def test_a_model_can_be_loaded_again_while_its_old_self_goes(api, model):
    for _ in range(3):
        api.call("unload_model", model, unload_dependents=True)
        api.call("load_model", model)
        assert answer(api, model) == 4


def test_loading_a_loaded_model_changes_nothing(api, kept):
    for _ in range(3):
        api.call("load_model", kept)
        assert answer(api, kept) == 4


def test_requests_in_flight_are_answered_while_their_model_is_unloaded(api, bind):
    gated = Gated()
    model = bind(gated)
    call = api.submit("infer", model, api.inputs({"x": filled(2)}))
    gated.wait_called()
    api.call("unload_model", model)
    with api.refuses("NOT_FOUND"):
        api.infer(model, {"x": filled(2)})
    assert entry(api, model)["state"] == "UNLOADING"
    assert api.call("is_server_ready") is False
    gated.gate.open()
    assert Answer(call.result(DEADLINE_S))["y"][0, 0] == 4
    wait_for(lambda: api.call("is_server_ready"), "the model to be unloaded")


def test_an_unknown_model_cannot_be_loaded_and_unloading_it_does_nothing(api):
    with api.refuses("INTERNAL", "failed to load 'unknown'"):
        api.call("load_model", "unknown")
    api.call("unload_model", "unknown")


def test_a_model_takes_another_configuration_until_it_is_unloaded(api, model):
    bound = api.call("get_model_config", model)
    other = {**bound, "max_batch_size": 2, "dynamic_batching": {}}
    api.call("load_model", model, config=json.dumps(other))
    assert api.call("get_model_config", model)["max_batch_size"] == 2
    assert answer(api, model) == 4
    with api.refuses("INVALID_ARGUMENT", "must be <= 2"):
        api.infer(model, {"x": filled(1, rows=3)})
    api.call("unload_model", model)
    api.call("load_model", model)
    assert api.call("get_model_config", model)["max_batch_size"] == 8
    assert answer(api, model) == 4


@native_part_only
@pytest.mark.parametrize("partial", ['{"max_batch_size": "16"}', ' { "maxBatchSize" : 16, "parameters": {} } '])
def test_a_partial_configuration_is_filled_up_from_the_models_own(api, model, partial):
    bound = api.call("get_model_config", model)
    api.call("load_model", model, config=partial)
    config = api.call("get_model_config", model)
    assert (config["max_batch_size"], config["input"]) == (16, bound["input"])
    assert answer(api, model) == 4
    api.call("unload_model", model)
    api.call("load_model", model)
    assert api.call("get_model_config", model)["max_batch_size"] == 8


@native_part_only
def test_another_scheduling_takes_the_place_of_the_models_own(api, model):
    api.call("load_model", model, config='{"sequence_batching": {"oldest": {"max_candidate_sequences": 4}}}')
    config = api.call("get_model_config", model)
    assert "sequence_batching" in config
    assert "dynamic_batching" not in config
    api.call("unload_model", model)
    api.call("load_model", model)
    assert answer(api, model) == 4


def test_a_program_fills_up_a_partial_configuration_itself(api, model):
    config = api.call("get_model_config", model)
    config["max_batch_size"] = 16
    api.call("load_model", model, config=json.dumps(config))
    assert api.call("get_model_config", model)["max_batch_size"] == 16
    assert answer(api, model) == 4
    api.call("unload_model", model)
    api.call("load_model", model)


@pytest.mark.parametrize(
    ("config", "status", "text"),
    [
        ("{", "INTERNAL", "failed to load"),
        ('{"max_batch_size": "many"}', "INTERNAL", "failed to load"),
        ('{"backend": "unknown"}', "INVALID_ARGUMENT", "unable to find backend library"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_and_the_model_goes_on(api, kept, config, status, text):
    with api.refuses(status, text):
        api.call("load_model", kept, config=config)
    assert answer(api, kept) == 4


@pytest.mark.parametrize("api", ["http", "grpc"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}, "give bind() a list of 2 callables, or configure 1"),
        ({"input": [{"name": "z", "data_type": "TYPE_FP32", "dims": [-1]}]}, "input ['z'], but was bound with ['x']"),
        ({"max_batch_size": 0}, "batching False, but was bound with True"),
        ({"model_transaction_policy": {"decoupled": True}}, "decoupled True, but was bound with False"),
    ],
)
def test_a_configuration_that_the_callables_cannot_serve_is_refused_with_what_to_do(api, kept, changes, text):
    config = api.call("get_model_config", kept)
    config.pop("dynamic_batching", None)  # without a batcher, the server loads more than its instances anew
    config.get("parameters", {}).pop("pytriton_batcher", None)
    with api.refuses("INVALID_ARGUMENT", text):
        api.call("load_model", kept, config=json.dumps({**config, **changes}))
    assert answer(api, kept) == 4


def test_a_client_may_bring_the_files_of_a_model(api, kept):
    files = {"file:1/model.py": UPLOADED}
    with api.refuses("INTERNAL", "failed to load 'uploaded'"):  # files need a configuration
        api.call("load_model", "uploaded", files=files)
    api.call("load_model", "uploaded", config=json.dumps(CONFIG), files=files)
    assert api.call("is_model_ready", "uploaded") is True
    with api.refuses("INTERNAL", "from the uploaded file"):
        answer(api, "uploaded")
    assert answer(api, kept) == 4
    api.call("unload_model", "uploaded")
    assert api.call("is_model_ready", "uploaded") is False


def test_a_bound_model_comes_back_after_a_client_replaced_its_files(api, triton, model):
    api.call("load_model", model, config=json.dumps(CONFIG), files={"file:1/model.py": UPLOADED})
    with api.refuses("INTERNAL", "from the uploaded file"):
        answer(api, model)
    api.call("load_model", model)
    assert answer(api, model) == 4
    assert triton.is_alive()
