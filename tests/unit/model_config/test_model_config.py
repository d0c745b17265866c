import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import pytriton.model_config
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import (
    AllVersions,
    DeviceKind,
    DynamicBatcher,
    InstanceGroup,
    LatestVersions,
    ModelConfig,
    ModelWarmup,
    QueuePolicy,
    SpecificVersions,
    Tensor,
    TimeoutAction,
    WarmupInput,
)
from pytriton.model_config.triton_model_config import TensorSpec
from pytriton.model_config.validation import checked_copy


def test_every_public_name_is_there():
    names = {"DeviceKind", "DynamicBatcher", "ModelConfig", "QueuePolicy", "Tensor", "TimeoutAction"}
    names |= {"DirectStrategy", "LatencyTarget", "OldestStrategy", "SequenceBatcher", "ModelWarmup", "WarmupInput"}
    names |= {"AllVersions", "LatestVersions", "SpecificVersions"}
    names |= {"InstanceGroup", "RateLimiter", "RateLimiterResource", "Recording"}
    assert set(pytriton.model_config.__all__) == names
    assert all(hasattr(pytriton.model_config, name) for name in names)


def test_a_model_batches_dynamically_by_default():
    config = ModelConfig()
    assert (config.batching, config.max_batch_size, config.batcher) == (True, 4, DynamicBatcher())
    assert (config.response_cache, config.decoupled) == (False, False)
    assert (config.isolate_errors, config.send_traceback, config.max_batches_in_flight) == (True, False, 64)


def test_documented_fields_are_positional_and_ours_are_keywords():
    ours = {"isolate_errors": False, "send_traceback": True, "max_batches_in_flight": 3}
    config = ModelConfig(False, 8, None, True, True, [], **ours)
    assert dataclasses.astuple(config)[:9] == (False, 8, None, True, True, [], False, True, 3)
    with pytest.raises(TypeError):
        ModelConfig(False, 8, None, True, True, [], False)


def test_defaults_of_batcher_and_queue_are_the_servers():
    assert dataclasses.astuple(DynamicBatcher()) == (0, None, False, 0, 0, None, None)
    assert dataclasses.astuple(QueuePolicy()) == (TimeoutAction.REJECT, 0, False, 0)


def test_a_checked_copy_shares_nothing_with_what_was_copied():
    config = ModelConfig(batcher=DynamicBatcher(preferred_batch_size=[4], priority_queue_policy={1: QueuePolicy()}))
    config.model_warmup = [ModelWarmup("w", 1, {"x": WarmupInput(np.float32, (1,), zero_data=True)})]
    copied = checked_copy(config)
    assert copied == config
    config.batcher.preferred_batch_size.append(8)
    config.batcher.priority_queue_policy[1].max_queue_size = 9
    config.model_warmup[0].inputs["x"].shape = (2,)
    assert copied.batcher.preferred_batch_size == [4]
    assert copied.batcher.priority_queue_policy[1].max_queue_size == 0
    assert copied.model_warmup[0].inputs["x"].shape == (1,)


def test_a_checked_copy_normalises_what_was_assigned():
    batcher = DynamicBatcher()
    batcher.preferred_batch_size = (4, 8)
    batcher.priority_queue_policy = {}
    assert checked_copy(batcher) == DynamicBatcher(preferred_batch_size=[4, 8])


@pytest.mark.parametrize(
    ("made", "field", "value", "make_again"),
    [
        (DynamicBatcher(), "preferred_batch_size", 4, lambda: DynamicBatcher(preferred_batch_size=4)),
        (DynamicBatcher(), "priority_queue_policy", "x", lambda: DynamicBatcher(priority_queue_policy="x")),
        (SpecificVersions([1]), "versions", 1, lambda: SpecificVersions(1)),
        (InstanceGroup(), "gpus", 0, lambda: InstanceGroup(gpus=0)),
        (ModelWarmup("w", 1, {}), "inputs", [], lambda: ModelWarmup("w", 1, [])),
        (WarmupInput(np.int8, (1,)), "shape", (-1,), lambda: WarmupInput(np.int8, (-1,))),
        (Tensor((1,), np.int8), "dtype", "complex64", lambda: Tensor((1,), "complex64")),
        (TensorSpec("x", (1,), np.int8), "shape", (0,), lambda: TensorSpec("x", (0,), np.int8)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_assigned_value_is_refused_as_the_constructor_refuses_it(made, field, value, make_again):
    with pytest.raises(PyTritonBadParameterError) as at_construction:
        make_again()
    setattr(made, field, value)
    with pytest.raises(PyTritonBadParameterError) as when_used:
        checked_copy(made)
    assert str(when_used.value) == str(at_construction.value)


@pytest.mark.parametrize("name", ["max_batch_size", "max_batches_in_flight"])
@pytest.mark.parametrize("value", ["8", 2.0, None, True])
def test_a_number_that_is_none_is_refused_where_it_is_written(name, value):
    with pytest.raises(PyTritonBadParameterError, match=f"{name} must be an integer, got {value!r}"):
        ModelConfig(**{name: value})
    assert getattr(ModelConfig(**{name: np.int64(8)}), name) == 8


def test_an_assignment_to_no_field_is_warned_of(caplog):
    config = ModelConfig()
    config.max_batch = 3
    assert checked_copy(config).max_batch_size == 4
    assert (
        "ModelConfig has no field ['max_batch'], which has no effect; fields: batching, max_batch_size" in caplog.text
    )


@pytest.mark.parametrize("enumeration", [DeviceKind, TimeoutAction])
def test_enumerations_have_their_names_as_values(enumeration):
    assert all(member.value == member.name for member in enumeration)


def test_a_batcher_with_empty_collections_equals_one_without():
    assert DynamicBatcher(preferred_batch_size=[], priority_queue_policy={}) == DynamicBatcher()


def test_a_batcher_keeps_its_own_copy_of_collections():
    sizes, policies = [4], {1: QueuePolicy()}
    batcher = DynamicBatcher(preferred_batch_size=sizes, priority_queue_policy=policies)
    sizes.append(8)
    policies.clear()
    assert batcher == DynamicBatcher(preferred_batch_size=(4,), priority_queue_policy={1: QueuePolicy()})


@pytest.mark.parametrize("options", [{"preferred_batch_size": 8}, {"priority_queue_policy": [QueuePolicy()]}])
def test_a_batcher_refuses_what_is_no_collection(options):
    (name,) = options
    with pytest.raises(PyTritonBadParameterError, match=name):
        DynamicBatcher(**options)


def test_importing_the_package_imports_neither_protobuf_nor_grpc():
    code = (
        "import sys, pytriton.model_config.generator, pytriton.model_config.parser;"
        "print({'google.protobuf', 'grpc', 'tritonclient'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (AllVersions(), {1, 2, 10}),
        (LatestVersions(), {10}),
        (LatestVersions(2), {2, 10}),
        (LatestVersions(9), {1, 2, 10}),
        (SpecificVersions([10, 1, 7]), {1, 10}),
    ],
)
def test_a_policy_chooses_among_the_versions_that_there_are(policy, served):
    assert policy.served([10, 1, 2]) == served
