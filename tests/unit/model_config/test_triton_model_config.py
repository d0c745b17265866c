import dataclasses
import pickle

import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import AllVersions, DeviceKind, DynamicBatcher, InstanceGroup, SequenceBatcher, Tensor
from pytriton.model_config.tensor import name_tensors
from pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig


def test_only_the_name_is_needed():
    config = TritonModelConfig("m")
    of_server = ("m", 1, 4, True, None, {}, False, {}, None, None, None, None, (), None)
    assert dataclasses.astuple(config) == (*of_server, None, None, None)
    assert config.version_policy == AllVersions()
    assert config.backend == "python"


def test_empty_inputs_and_outputs_become_none_and_others_a_list():
    spec = TensorSpec("x", (1,), np.float32)
    config = TritonModelConfig("m", inputs=(spec,), outputs=[])
    assert config.inputs == [spec]
    assert config.outputs is None


def test_without_batching_size_and_batcher_are_dropped():
    config = TritonModelConfig("m", batching=False, max_batch_size=8, batcher=DynamicBatcher())
    assert (config.max_batch_size, config.batcher) == (0, None)


def test_sequences_are_kept_together_without_batching_too():
    assert TritonModelConfig("m", batching=False, batcher=SequenceBatcher()).batcher == SequenceBatcher()


def test_instances_are_told_by_device_and_by_group_whichever_was_given():
    by_device = TritonModelConfig("m", instance_group={DeviceKind.KIND_CPU: 2, DeviceKind.KIND_GPU: None})
    assert by_device.instance_groups == [InstanceGroup(2), InstanceGroup(None, DeviceKind.KIND_GPU)]
    by_group = TritonModelConfig("m", instance_groups=[InstanceGroup(2, host_policy="p"), InstanceGroup(3)])
    assert by_group.instance_group == {DeviceKind.KIND_CPU: 5}


def test_backend_parameters_become_text():
    assert TritonModelConfig("m", backend_parameters={"size": 5}).backend_parameters == {"size": "5"}


def test_two_configurations_share_no_dicts():
    first, second = TritonModelConfig("m"), TritonModelConfig("m")
    first.instance_group[DeviceKind.KIND_CPU] = 1
    assert second.instance_group == {}


def test_configurations_can_be_pickled():
    config = TritonModelConfig("m", inputs=[TensorSpec("x", (1,), np.bytes_)], response_cache=ResponseCache(True))
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("dtype", [bytes, object, np.object_, np.bytes_, "S4"])
def test_specs_of_bytes_and_objects_are_equal(dtype):
    assert TensorSpec("x", (1,), dtype).dtype is np.bytes_


def test_a_spec_checks_shape_and_dtype():
    with pytest.raises(PyTritonBadParameterError, match="shape"):
        TensorSpec("x", (0,), np.float32)
    with pytest.raises(PyTritonBadParameterError, match="dtype"):
        TensorSpec("x", (1,), np.str_)


def test_missing_names_are_filled_by_position_over_all_tensors():
    tensors = [Tensor((1,), np.float32), Tensor((2,), object, "b", optional=True), Tensor((), np.int8, "")]
    assert name_tensors(tensors, "INPUT") == [
        TensorSpec("INPUT_1", (1,), np.float32),
        TensorSpec("b", (2,), np.bytes_, optional=True),
        TensorSpec("INPUT_3", (), np.int8),
    ]
    assert name_tensors([], "OUTPUT") == []
