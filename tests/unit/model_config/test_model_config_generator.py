import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig

ALWAYS = {"name": "m", "backend": "python", "version_policy": {"all": {}}}


def generate(**options):
    return ModelConfigGenerator(TritonModelConfig("m", **options)).get_config()


def test_a_plain_model_says_name_backend_versions_and_size():
    assert generate() == {**ALWAYS, "max_batch_size": 4}


def test_without_batching_the_size_is_zero_and_nothing_else_is_said():
    assert generate(batching=False, batcher=DynamicBatcher(preserve_ordering=True)) == {**ALWAYS, "max_batch_size": 0}


def test_a_default_batcher_turns_dynamic_batching_on_with_the_servers_defaults():
    assert generate(batcher=DynamicBatcher())["dynamic_batching"] == {}


def test_a_batcher_writes_what_is_not_default():
    policy = QueuePolicy(TimeoutAction.DELAY, 7, True, 9)
    batcher = DynamicBatcher(100, [2, 4], True, 3, 2, QueuePolicy(), {1: policy})
    assert generate(batcher=batcher)["dynamic_batching"] == {
        "maxQueueDelayMicroseconds": 100,
        "preferredBatchSize": [2, 4],
        "preserveOrdering": True,
        "priorityLevels": 3,
        "defaultPriorityLevel": 2,
        "defaultQueuePolicy": {
            "timeoutAction": "REJECT",
            "defaultTimeoutMicroseconds": 0,
            "allowTimeoutOverride": False,
            "maxQueueSize": 0,
        },
        "priorityQueuePolicy": {
            1: {
                "timeoutAction": "DELAY",
                "defaultTimeoutMicroseconds": 7,
                "allowTimeoutOverride": True,
                "maxQueueSize": 9,
            }
        },
    }


def test_tensors_are_written_with_optional_only_if_true():
    inputs = [TensorSpec("a", (-1, 2), np.float32), TensorSpec("b", (1,), np.object_, optional=True)]
    config = generate(inputs=inputs, outputs=[TensorSpec("c", (3,), np.bool_)])
    assert config["input"] == [
        {"name": "a", "dims": [-1, 2], "data_type": "TYPE_FP32"},
        {"name": "b", "dims": [1], "data_type": "TYPE_STRING", "optional": True},
    ]
    assert config["output"] == [{"name": "c", "dims": [3], "data_type": "TYPE_BOOL"}]


def test_a_tensor_without_dimensions_gets_one_that_an_empty_reshape_takes_away():
    (tensor,) = generate(inputs=[TensorSpec("a", (), np.int8)])["input"]
    assert tensor == {"name": "a", "dims": [1], "data_type": "TYPE_INT8", "reshape": {"shape": []}}


def test_other_options_have_their_keys():
    config = generate(
        instance_group={DeviceKind.KIND_CPU: 2, DeviceKind.KIND_GPU: None},
        decoupled=True,
        backend_parameters={"socket": "ipc://x", "size": 5},
        response_cache=ResponseCache(enable=False),
    )
    assert config == {
        **ALWAYS,
        "max_batch_size": 4,
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}, {"kind": "KIND_GPU"}],
        "model_transaction_policy": {"decoupled": True},
        "parameters": {"socket": {"string_value": "ipc://x"}, "size": {"string_value": "5"}},
        "response_cache": {"enable": False},
    }


def test_the_file_is_written_with_its_directories_and_the_message_returned(tmp_path):
    path = tmp_path / "m" / "deep" / "config.pbtxt"
    message = ModelConfigGenerator(TritonModelConfig("m", batcher=DynamicBatcher())).to_file(path)
    assert message.DESCRIPTOR.full_name == "inference.ModelConfig"
    assert (message.name, message.backend, message.max_batch_size) == ("m", "python", 4)
    assert message.HasField("dynamic_batching")
    assert path.read_text().splitlines().count("max_batch_size: 4") == 1


def test_the_file_says_explicitly_that_there_is_no_batching(tmp_path):
    path = tmp_path / "config.pbtxt"
    ModelConfigGenerator(TritonModelConfig("m", batching=False)).to_file(str(path))
    assert path.read_text().splitlines().count("max_batch_size: 0") == 1


def test_a_bad_configuration_leaves_no_file(tmp_path):
    path = tmp_path / "config.pbtxt"
    with pytest.raises(PyTritonBadParameterError):
        ModelConfigGenerator(TritonModelConfig("m", max_batch_size=0)).to_file(path)
    assert not path.exists()
