from dataclasses import replace

import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.model_config.validation import validate

X = TensorSpec("x", (1,), np.float32)
SCALAR = TensorSpec("x", (), np.float32)
NAMELESS = [TensorSpec("", (1,), np.float32), TensorSpec(5, (1,), np.float32)]
OPTIONAL = TensorSpec("x", (1,), np.float32, optional=True)


LEVELS = {"priority_levels": 2, "default_priority_level": 1}


def refuse(match, **options):
    config = TritonModelConfig("m", **options)
    with pytest.raises(PyTritonBadParameterError, match=match):
        validate(config)
    with pytest.raises(PyTritonBadParameterError, match=match):
        ModelConfigGenerator(config).get_config()


@pytest.mark.parametrize("size", [0, -1, 2**31, 1.0, "4", True, None])
def test_max_batch_size_must_be_a_positive_int32(size):
    refuse("max_batch_size must be an integer from 1 to 2147483647", max_batch_size=size)


def test_without_batching_size_and_batcher_are_not_checked():
    validate(TritonModelConfig("m", batching=False, max_batch_size=-1, batcher=DynamicBatcher(priority_levels=-1)))


@pytest.mark.parametrize("name", ["input", "output"])
def test_tensor_names_must_be_there_and_differ_on_one_side(name):
    refuse(f"{name} name 'x' is used twice", **{f"{name}s": [X, SCALAR]})
    for nameless in NAMELESS:
        refuse(f"{name} name must be a text", **{f"{name}s": [nameless]})


def test_an_input_and_an_output_may_share_a_name():
    validate(TritonModelConfig("m", inputs=[X], outputs=[X]))


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_tensors_without_dimensions_need_batching(side):
    refuse("has no dimension", batching=False, **{side: [SCALAR]})
    validate(TritonModelConfig("m", **{side: [SCALAR]}))


def test_an_image_has_three_dimensions_and_is_an_input():
    image = TensorSpec("x", (3, -1, -1), np.float32, format="NCHW")
    validate(TritonModelConfig("m", inputs=[image]))
    refuse(r"format NCHW and shape \(3, -1\)", inputs=[replace(image, shape=(3, -1))])
    refuse("output 'x' has a format", outputs=[image])


def test_labels_are_of_outputs_with_scores():
    scores = TensorSpec("x", (2,), np.float32, label_filename="labels.txt", labels=["a", "b"])
    validate(TritonModelConfig("m", outputs=[scores]))
    refuse("input 'x' has labels", inputs=[scores])
    refuse("holds texts", outputs=[replace(scores, dtype=np.bytes_)])
    for name in ("", "a/b", "../b", ".."):
        refuse("label_filename must name a file", outputs=[replace(scores, label_filename=name)])


def test_only_inputs_may_be_optional():
    refuse("output 'x' is optional", outputs=[OPTIONAL])
    validate(TritonModelConfig("m", inputs=[OPTIONAL]))


@pytest.mark.parametrize(
    "group", [{DeviceKind.KIND_CPU: 0}, {DeviceKind.KIND_GPU: -1}, {DeviceKind.KIND_AUTO: "2"}, {"KIND_CPU": 1}]
)
def test_instance_groups_count_instances_by_device_kind(group):
    refuse("instance_group", instance_group=group)


def test_an_instance_group_may_leave_the_count_to_the_server():
    validate(TritonModelConfig("m", instance_group={DeviceKind.KIND_GPU: None, DeviceKind.KIND_CPU: 1}))


LIMITS_OF_BATCHER = [
    ({"max_queue_delay_microseconds": -1}, "max_queue_delay_microseconds"),
    ({"max_queue_delay_microseconds": 2**64}, "max_queue_delay_microseconds"),
    ({"max_queue_delay_microseconds": 0.5}, "max_queue_delay_microseconds"),
    ({"preferred_batch_size": [4, 0]}, "preferred_batch_size must be an integer from 1 to 4, got 0"),
    ({"preferred_batch_size": [5]}, "preferred_batch_size must be an integer from 1 to 4, got 5"),
    ({"preferred_batch_size": ["4"]}, "preferred_batch_size"),
    ({"priority_levels": -1}, "priority_levels"),
    ({"default_priority_level": -1}, "default_priority_level"),
    ({"default_priority_level": 1}, "with 0 priority_levels, default_priority_level"),
    ({"priority_levels": 2}, "with 2 priority_levels, default_priority_level"),
    ({"priority_levels": 2, "default_priority_level": 3}, "with 2 priority_levels, default_priority_level"),
    ({"priority_queue_policy": {1: QueuePolicy()}}, "priority_queue_policy needs priority_levels"),
    ({**LEVELS, "priority_queue_policy": {0: QueuePolicy()}}, "level of priority_queue_policy"),
    ({**LEVELS, "priority_queue_policy": {3: QueuePolicy()}}, "level of priority_queue_policy"),
    ({**LEVELS, "priority_queue_policy": {1: 5}}, "level 1 must be a QueuePolicy"),
    ({"default_queue_policy": {}}, "default_queue_policy must be a QueuePolicy"),
]


@pytest.mark.parametrize(("options", "match"), LIMITS_OF_BATCHER)
def test_a_batcher_out_of_range_is_refused(options, match):
    refuse(match, batcher=DynamicBatcher(**options))


def test_a_batcher_of_another_type_is_refused():
    refuse("batcher must be a DynamicBatcher", batcher=True)


LIMITS_OF_POLICY = [
    (QueuePolicy(timeout_action="DELAY"), "timeout_action must be a TimeoutAction"),
    (QueuePolicy(default_timeout_microseconds=-1), "default_timeout_microseconds"),
    (QueuePolicy(max_queue_size=-1), "max_queue_size"),
    (QueuePolicy(max_queue_size=2**32), "max_queue_size"),
]


@pytest.mark.parametrize(("policy", "match"), LIMITS_OF_POLICY)
def test_a_queue_policy_out_of_range_is_refused_wherever_it_is(policy, match):
    refuse(f"default_queue_policy: {match}", batcher=DynamicBatcher(default_queue_policy=policy))
    refuse(f"level 1: {match}", batcher=DynamicBatcher(**LEVELS, priority_queue_policy={1: policy}))


def test_values_at_their_limits_are_accepted():
    policy = QueuePolicy(TimeoutAction.DELAY, 2**64 - 1, True, 2**32 - 1)
    batcher = DynamicBatcher(2**64 - 1, [1, np.int32(8)], True, 2, 2, policy, {1: policy, 2: policy})
    validate(TritonModelConfig("m", max_batch_size=8, batcher=batcher))
