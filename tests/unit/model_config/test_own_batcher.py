"""Which models the native proxy makes batches for, and how their configuration says so."""

from dataclasses import replace

import pytest

from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config import (
    DynamicBatcher,
    InstanceGroup,
    LatencyTarget,
    QueuePolicy,
    RateLimiter,
    SequenceBatcher,
)
from pytriton.model_config.field_table import with_own_batcher
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import ResponseCache, TritonModelConfig

OWN = [
    DynamicBatcher(),
    DynamicBatcher(max_queue_delay_microseconds=100),
    DynamicBatcher(preferred_batch_size=[2, 4], max_queue_delay_microseconds=5),
    LatencyTarget(50),
    LatencyTarget(0.25, percentile=0.9),
]
COSTS = [{}, {"batch_cost": ("x", None), "max_batch_cost": 100}, {"batch_cost": ("x", 2)}]
SERVERS = [
    {"batcher": None},
    {"batcher": SequenceBatcher()},
    {"batching": False},
    {"response_cache": ResponseCache(True)},
    {"instance_groups": [InstanceGroup(1), InstanceGroup(1, rate_limiter=RateLimiter())]},
    {"batcher": DynamicBatcher(preserve_ordering=True)},
    {"batcher": DynamicBatcher(priority_levels=2, default_priority_level=1)},
    {"batcher": DynamicBatcher(default_queue_policy=QueuePolicy(max_queue_size=1))},
    {"batcher": DynamicBatcher(priority_queue_policy={1: QueuePolicy()})},
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
@pytest.mark.parametrize("batcher", OWN, ids=repr)
def test_a_configuration_with_the_proxys_batcher_is_read_as_the_one_that_was_bound(batcher, cost, tmp_path):
    bound = TritonModelConfig("m", batcher=batcher, backend_parameters={"other": "text"}, **cost)
    served = with_own_batcher(bound)
    generator = ModelConfigGenerator(served)
    assert "dynamic_batching" not in generator.get_config()
    assert ModelConfigParser.from_dict(generator.get_config()) == bound
    generator.write(tmp_path / "config.pbtxt")
    assert ModelConfigParser.from_file(config_path=tmp_path / "config.pbtxt") == bound


def test_the_generator_writes_options_that_only_the_proxys_batcher_has():
    config = TritonModelConfig("m", batcher=LatencyTarget(50), batch_cost=("x", 1), max_batch_cost=9)
    assert ModelConfigParser.from_dict(ModelConfigGenerator(config).get_config()) == config


@pytest.mark.parametrize("options", SERVERS, ids=repr)
def test_the_server_makes_the_batches_where_it_has_to_know_which_requests_wait(options):
    config = replace(TritonModelConfig("m", batcher=DynamicBatcher()), **options)
    assert with_own_batcher(config) == config


@pytest.mark.parametrize("text", ["", "[]", '"fast"', '{"preferredBatchSize": "many"}', '{"maxBatchCost": "x"}'])
def test_another_parameter_of_that_name_is_refused(text):
    config = {"name": "m", "parameters": {"pytriton_batcher": {"string_value": text}}}
    with pytest.raises(PyTritonModelConfigError):
        ModelConfigParser.from_dict(config)
