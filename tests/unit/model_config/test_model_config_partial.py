import json

import pytest

from pytriton.model_config.parser import complete_config, is_partial_config

OWN = {
    "name": "m",
    "backend": "pytriton",
    "max_batch_size": 4,
    "input": [{"name": "x"}],
    "output": [{"name": "y"}],
    "dynamic_batching": {"preferred_batch_size": [4]},
    "parameters": {},
}


@pytest.mark.parametrize(
    "config", ['{"max_batch_size": "16"}', '{"dynamicBatching": {}}', '{"name": "m", "version_policy": {"all": {}}}']
)
def test_a_configuration_without_backend_and_tensors_is_partial(config):
    assert is_partial_config(config)


@pytest.mark.parametrize(
    "config",
    [
        '{"backend": "python", "max_batch_size": 16}',
        '{"platform": "p"}',
        '{"input": []}',
        '{"output": [], "max_batch_size": 2}',
        "{}",
        "[]",
        "3",
        "{",
        "[" * 100_000,
        None,
        {"max_batch_size": 16},
    ],
)
def test_a_configuration_with_them_and_what_is_none_are_left_alone(config):
    assert not is_partial_config(config)


def test_what_a_partial_configuration_leaves_out_is_the_models_own():
    assert json.loads(complete_config('{"max_batch_size": "16"}', OWN)) == {**OWN, "max_batch_size": "16"}
    assert json.loads(complete_config('{"maxBatchSize": 2}', OWN)) == {**OWN, "max_batch_size": 2}
    assert json.loads(complete_config('{"max_batch_size": 2}', {})) == {"max_batch_size": 2}


def test_another_scheduling_replaces_the_models_own():
    filled = json.loads(complete_config('{"sequence_batching": {"oldest": {}}}', OWN))
    assert filled == {
        **{key: OWN[key] for key in OWN if key != "dynamic_batching"},
        "sequence_batching": {"oldest": {}},
    }
