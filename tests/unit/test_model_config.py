import dataclasses
import subprocess
import sys

import pytest

import pytriton.model_config
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import DeviceKind, DynamicBatcher, ModelConfig, QueuePolicy, TimeoutAction


def test_every_public_name_is_there():
    names = {"DeviceKind", "DynamicBatcher", "ModelConfig", "QueuePolicy", "Tensor", "TimeoutAction"}
    names |= {"DirectStrategy", "OldestStrategy", "SequenceBatcher", "ModelWarmup", "WarmupInput"}
    names |= {"AllVersions", "LatestVersions", "SpecificVersions"}
    names |= {"InstanceGroup", "RateLimiter", "RateLimiterResource"}
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


@pytest.mark.parametrize("instance", [ModelConfig(), DynamicBatcher(), QueuePolicy()], ids=lambda it: type(it).__name__)
def test_options_are_frozen(instance):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(instance, dataclasses.fields(instance)[0].name, 1)


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
