"""What ``bind`` refuses of sequences, instances, versions and warm-ups, before the server sees it."""

import math

import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import (
    DeviceKind,
    DirectStrategy,
    DynamicBatcher,
    InstanceGroup,
    LatencyTarget,
    LatestVersions,
    ModelConfig,
    ModelWarmup,
    OldestStrategy,
    RateLimiter,
    RateLimiterResource,
    SequenceBatcher,
    SpecificVersions,
    Tensor,
    WarmupInput,
)
from pytriton.model_spec import describe

X, Y = Tensor(name="x", shape=(-1, 2), dtype=np.float32), Tensor(name="y", shape=(-1,), dtype=np.float32)
TEXT = Tensor(name="text", shape=(), dtype=bytes, optional=True)
LIMITED = InstanceGroup(rate_limiter=RateLimiter())
COST = {"batch_cost": "x", "max_batch_cost": 10}
ZEROS = WarmupInput(np.float32, (5, 2), zero_data=True)


def described(callables=1, inputs=(X,), **options):
    return describe("m", 1, list(inputs), [Y], ModelConfig(**options), callables)


def refuse(match, callables=1, inputs=(X,), **options):
    with pytest.raises(PyTritonBadParameterError, match=match):
        described(callables, inputs, **options)


def oldest(**options):
    return SequenceBatcher(strategy=OldestStrategy(**{"max_candidate_sequences": 1, **options}))


def direct(**options):
    return SequenceBatcher(strategy=DirectStrategy(**options))


@pytest.mark.parametrize(
    ("batcher", "message"),
    [
        (oldest(max_candidate_sequences=0), "max_candidate_sequences must be an integer from 1"),
        (oldest(preferred_batch_size=[5]), "preferred_batch_size must be an integer from 1 to 4, got 5"),
        (oldest(max_queue_delay_microseconds=-1), "max_queue_delay_microseconds"),
        (direct(max_queue_delay_microseconds=0.5), "max_queue_delay_microseconds"),
        (direct(minimum_slot_utilization=1.5), "minimum_slot_utilization must be from 0.0 to 1.0, got 1.5"),
        (direct(minimum_slot_utilization="all"), "minimum_slot_utilization"),
        (SequenceBatcher(max_sequence_idle_microseconds=0), "max_sequence_idle_microseconds"),
        (SequenceBatcher(strategy="direct"), "strategy must be a DirectStrategy or an OldestStrategy"),
        ("dynamic", "batcher must be a DynamicBatcher"),
    ],
)
def test_sequence_batchers_have_limits(batcher, message):
    refuse(message, batcher=batcher)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (LatencyTarget(0), "ms of a LatencyTarget must be from 0.1 to 3600000, got 0"),
        (LatencyTarget(-5), "got -5"),
        (LatencyTarget(math.nan), "got nan"),
        (LatencyTarget(math.inf), "got inf"),
        (LatencyTarget("fast"), "ms of a LatencyTarget must be a number, got 'fast'"),
        (LatencyTarget(50, 99), "percentile of a LatencyTarget must be from 0.5 to 0.999, as a share, got 99"),
        (LatencyTarget(50, True), "percentile of a LatencyTarget must be a number"),
    ],
    ids=repr,
)
def test_a_latency_target_has_limits(target, message):
    refuse(message, batcher=target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_cost": 10}, "max_batch_cost needs a batch_cost"),
        ({"batch_cost": "x"}, "batch_cost has no effect without max_batch_cost or a LatencyTarget"),
        ({"batch_cost": "z", "max_batch_cost": 10}, r"batch_cost names the input 'z'; the model has \['x'\]"),
        ({"batch_cost": ("x", 0), "max_batch_cost": 10}, "batch_cost names axis 0 of input 'x', .* are 1 to 2"),
        ({"batch_cost": ("x", 3), "max_batch_cost": 10}, "batch_cost names axis 3"),
        ({"batch_cost": ("x",), "max_batch_cost": 10}, "give the name of an input, or a pair such as"),
        ({"batch_cost": len, "max_batch_cost": 10}, "give the name of an input, or a pair such as"),
        ({"batch_cost": "x", "max_batch_cost": 0}, "max_batch_cost must be an integer from 1"),
    ],
    ids=repr,
)
def test_costs_name_an_input_and_have_limits(options, message):
    refuse(message, **options)


def test_sizes_of_sequence_batches_must_be_a_list():
    with pytest.raises(PyTritonBadParameterError, match=r"must be a list such as \[4, 8\]"):
        OldestStrategy(max_candidate_sequences=1, preferred_batch_size=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batcher": SequenceBatcher(), "decoupled": True}, "a decoupled model cannot have a SequenceBatcher"),
        ({"batcher": SequenceBatcher(), "response_cache": True}, "response_cache does not go with"),
        ({"decoupled": True, "response_cache": True}, "response_cache does not go with"),
        ({"batcher": DynamicBatcher(0, None, True, 2, 1)}, "preserve_ordering does not go with 2 priority_levels"),
        ({"batcher": LatencyTarget(50), "decoupled": True}, "a LatencyTarget does not go with"),
        ({"batcher": LatencyTarget(50), "response_cache": True}, "a LatencyTarget does not go with"),
        ({"batcher": LatencyTarget(50), "instance_groups": [LIMITED]}, "a LatencyTarget does not go with"),
        ({"batcher": LatencyTarget(50), "batching": False}, "a LatencyTarget, which needs batching=True"),
        ({**COST, "batching": False}, "a batch_cost does not go with"),
        ({**COST, "batcher": None}, "a batch_cost does not go with"),
        ({**COST, "batcher": SequenceBatcher()}, "a batch_cost does not go with"),
        ({**COST, "batcher": DynamicBatcher(priority_levels=2, default_priority_level=1)}, "a batch_cost does not go"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, message):
    refuse(message, **options)


def test_without_groups_all_callables_are_one_group_on_the_cpu():
    assert described(3).instance_groups == [InstanceGroup(3, DeviceKind.KIND_CPU)]


def test_one_group_without_a_count_takes_all_callables():
    assert described(3, instance_groups=[InstanceGroup(host_policy="p")]).instance_groups[0].count == 3
    on_gpus = InstanceGroup(kind=DeviceKind.KIND_GPU, gpus=[0, 1])
    assert described(6, instance_groups=[on_gpus]).instance_groups[0].count == 3


def limited(*resources, **options):
    return [InstanceGroup(rate_limiter=RateLimiter(list(resources), **options))]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([InstanceGroup(2)], "make 2 instances, but it has 3 callables"),
        ([InstanceGroup(2), InstanceGroup(2)], "make 4 instances, but it has 3 callables"),
        ([InstanceGroup(2), InstanceGroup()], "give each of several instance_groups a count"),
        ([InstanceGroup(kind=DeviceKind.KIND_GPU, gpus=[0, 1])], "make 2 instances, but it has 3 callables"),
        ([InstanceGroup(kind=DeviceKind.KIND_GPU)], "as many instances as it finds GPUs"),
        ([InstanceGroup(kind=DeviceKind.KIND_AUTO)], "as many instances as it finds GPUs"),
        ([InstanceGroup(gpus=[0])], "instance_group KIND_CPU has gpus; use KIND_GPU"),
        ([InstanceGroup(kind=DeviceKind.KIND_GPU, gpus=[-1])], "each of gpus must be an integer from 0"),
        ([InstanceGroup(kind="KIND_CPU")], "instance_group must be a DeviceKind"),
        ([InstanceGroup(0)], "instance_group KIND_CPU must be an integer from 1"),
        ([InstanceGroup(host_policy=3)], "host_policy must be a str"),
        (limited(priority=-1), "priority of the rate_limiter must be an integer from 0"),
        (limited(RateLimiterResource("r", 0)), "count of resource 'r' must be an integer from 1"),
        ([InstanceGroup(rate_limiter="r")], "rate_limiter must be a RateLimiter"),
        (InstanceGroup(3), "instance_groups must be a list of InstanceGroup"),
    ],
)
def test_instance_groups_fit_the_callables_and_have_limits(groups, message):
    refuse(message, callables=3, instance_groups=groups)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InstanceGroup(gpus=0), r"gpus must be a list such as \[0, 1\]"),
        (lambda: RateLimiter("r"), "resources must be a list of RateLimiterResource"),
        (lambda: SpecificVersions(3), r"versions must be a list such as \[1, 3\]"),
        (lambda: ModelWarmup("w", 1, [ZEROS]), "inputs must be a dict from input name to WarmupInput"),
        (lambda: ModelWarmup("w", 1, {"x": np.zeros(3)}), "inputs must be a dict from input name to WarmupInput"),
        (lambda: WarmupInput(np.float32, (-1,)), "needs sizes above 0 instead of -1"),
        (lambda: WarmupInput(complex, (1,)), "dtype"),
    ],
)
def test_what_is_no_list_or_dict_where_one_is_needed_is_refused_at_once(make, message):
    with pytest.raises(PyTritonBadParameterError, match=message):
        make()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (LatestVersions(0), "version_policy: count must be an integer from 1"),
        (SpecificVersions([]), "version_policy names no version"),
        (SpecificVersions([0]), "each of versions must be an integer from 1"),
        ("latest", "version_policy must be a AllVersions"),
    ],
)
def test_version_policies_have_limits(policy, message):
    refuse(message, version_policy=policy)


@pytest.mark.parametrize(
    ("warmup", "message"),
    [
        (ModelWarmup("w", 1, {"x": ZEROS, "z": ZEROS}), r"\['z'\] are no inputs of the model"),
        (ModelWarmup("w", 5, {"x": ZEROS}), "batch_size must be an integer from 1 to 4, got 5"),
        (ModelWarmup("w", 0, {"x": ZEROS}), "batch_size must be an integer from 1 to 4, got 0"),
        (ModelWarmup("w", 1, {"x": ZEROS}, -1), "count must be an integer from 0"),
        (ModelWarmup("w", 1, {"x": WarmupInput(np.float32, (5,), True)}), r"'x' is float32 of shape \(5,\)"),
        (ModelWarmup("w", 1, {"x": WarmupInput(np.float32, (5, 3), True)}), r"of shape \(5, 3\)"),
        (ModelWarmup("w", 1, {"x": WarmupInput(np.int32, (5, 2), True)}), "'x' is int32"),
        (ModelWarmup("w", 1, {"x": WarmupInput(np.float32, (5, 2))}), "'x' has no data; set zero_data"),
        (3, "each of model_warmup must be a ModelWarmup"),
    ],
)
def test_warm_ups_are_requests_that_a_client_could_make(warmup, message):
    refuse(message, inputs=[X, TEXT], model_warmup=[warmup])


def test_warm_ups_are_a_list():
    refuse("model_warmup must be a list of ModelWarmup", model_warmup=ModelWarmup("w", 1, {"x": ZEROS}))


@pytest.mark.parametrize("text", [WarmupInput(object, (), zero_data=True), WarmupInput(bytes, (), random_data=True)])
def test_a_warm_up_may_fill_inputs_of_any_rank_and_leave_optional_ones_out(text):
    for inputs in ({"x": ZEROS}, {"x": ZEROS, "text": text}):
        warmup = ModelWarmup("w", 4, inputs, 2)
        assert described(inputs=[X, TEXT], model_warmup=[warmup]).model_warmup is None


def test_without_batching_a_warm_up_has_no_batch_axis():
    for size in (0, 1):
        described(batching=False, model_warmup=[ModelWarmup("w", size, {"x": ZEROS})])
    refuse(
        "batch_size must be an integer from 0 to 1", batching=False, model_warmup=[ModelWarmup("w", 2, {"x": ZEROS})]
    )
