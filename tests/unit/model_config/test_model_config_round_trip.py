import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format, text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from pytriton.model_config import (
    AllVersions,
    DeviceKind,
    DirectStrategy,
    DynamicBatcher,
    InstanceGroup,
    LatestVersions,
    ModelWarmup,
    OldestStrategy,
    QueuePolicy,
    RateLimiter,
    RateLimiterResource,
    SequenceBatcher,
    SpecificVersions,
    TimeoutAction,
    WarmupInput,
)
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import EnsembleStep, ResponseCache, TensorSpec, TritonModelConfig

UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
SCALARS = [np.bool_, np.uint8, np.uint64, np.int16, np.int64, np.float16, np.float32, np.float64, np.bytes_, np.object_]
# Protobuf holds no lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = TEXT.filter(bool)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)
LABELS = st.lists(LINE, min_size=1, max_size=3)
FORMATS = [None, "NCHW", "NHWC"]

INT32 = st.integers(1, 2**31 - 1)
UTILIZATION = st.floats(0, 1, width=32, allow_subnormal=False)
direct = st.builds(DirectStrategy, max_queue_delay_microseconds=UINT64, minimum_slot_utilization=UTILIZATION)
resources = st.builds(RateLimiterResource, TEXT, st.integers(1, 2**32 - 1), st.booleans())
limiters = st.builds(RateLimiter, st.none() | st.lists(resources, max_size=2), UINT32)
groups = st.builds(
    InstanceGroup,
    st.none() | INT32,
    st.just(DeviceKind.KIND_GPU),
    st.none() | st.lists(st.integers(0, 7), max_size=2),
    TEXT,
    st.none() | limiters,
)
version_policies = (
    st.just(AllVersions())
    | st.builds(LatestVersions, st.integers(1, 2**32 - 1))
    | st.builds(SpecificVersions, st.lists(st.integers(1, 2**63 - 1), min_size=1))
)
sources = st.sampled_from([{"zero_data": True}, {"random_data": True}, {"input_data_file": "x.npy"}])
warmup_inputs = st.builds(
    lambda dtype, shape, source: WarmupInput(dtype, shape, **source),
    st.sampled_from(SCALARS),
    st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=3),
    sources,
)
warmups = st.builds(ModelWarmup, TEXT, UINT32, st.dictionaries(NAME, warmup_inputs, max_size=2), UINT32)

policies = st.builds(QueuePolicy, st.sampled_from(TimeoutAction), UINT64, st.booleans(), UINT32)


@st.composite
def batchers(draw, max_batch_size):
    levels = draw(UINT64)
    return DynamicBatcher(
        max_queue_delay_microseconds=draw(UINT64),
        preferred_batch_size=draw(st.none() | st.lists(st.integers(1, max_batch_size), max_size=3)),
        preserve_ordering=draw(st.booleans()),
        priority_levels=levels,
        default_priority_level=draw(st.integers(min(1, levels), levels)),
        default_queue_policy=draw(st.none() | policies),
        priority_queue_policy=draw(st.dictionaries(st.integers(1, levels), policies, max_size=2)) if levels else None,
    )


@st.composite
def sequence_batchers(draw, max_batch_size):
    oldest = st.builds(
        OldestStrategy,
        max_candidate_sequences=INT32,
        preferred_batch_size=st.none() | st.lists(st.integers(1, max_batch_size), max_size=3),
        max_queue_delay_microseconds=UINT64,
        preserve_ordering=st.booleans(),
    )
    idle_us = draw(st.integers(1, 2**64 - 1))
    return SequenceBatcher(strategy=draw(direct | oldest), max_sequence_idle_microseconds=idle_us)


@st.composite
def tensors(draw, batching, optional):
    dimension = st.just(-1) | st.integers(1, 2**63 - 1)
    shapes = st.lists(dimension, min_size=0 if batching else 1, max_size=3)
    names = draw(st.lists(NAME, unique=True, max_size=3))
    return [TensorSpec(name, draw(shapes), draw(st.sampled_from(SCALARS)), draw(optional)) for name in names]


@st.composite
def images(draw):
    spec = TensorSpec("image", (3, -1, -1), draw(st.sampled_from(SCALARS)), format=draw(st.sampled_from(FORMATS)))
    return draw(st.lists(st.just(spec), max_size=1))


@st.composite
def scores(draw):
    spec = TensorSpec("\nscores", (-1,), np.float32, label_filename="labels.txt", labels=draw(st.none() | LABELS))
    return draw(st.lists(st.just(spec), max_size=1))


STEPS = [EnsembleStep("other", {'x "1"': "a\n"}, {"y": "b"})]


@st.composite
def configurations(draw):
    batching = draw(st.booleans())
    max_batch_size = draw(st.integers(1, 2**31 - 1))
    return TritonModelConfig(
        model_name=draw(NAME),
        max_batch_size=max_batch_size,
        batching=batching,
        batcher=draw(st.none() | batchers(max_batch_size) | sequence_batchers(max_batch_size if batching else 1)),
        instance_group=draw(st.dictionaries(st.sampled_from(DeviceKind), st.none() | INT32)),
        instance_groups=draw(st.none() | st.lists(groups, max_size=3)),
        version_policy=draw(version_policies),
        model_warmup=draw(st.none() | st.lists(warmups, max_size=2)),
        decoupled=draw(st.booleans()),
        backend_parameters=draw(st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=3)),
        inputs=draw(tensors(batching, st.booleans())) + draw(images()),
        outputs=draw(tensors(batching, st.just(False))) + draw(scores()),
        response_cache=draw(st.none() | st.builds(ResponseCache, st.booleans())),
    )


def as_servers_tell(config):
    """A configuration without what only files hold: the labels themselves."""
    return replace(config, outputs=[replace(spec, labels=None) for spec in config.outputs or ()])


@settings(deadline=None)
@given(configurations())
def test_any_configuration_comes_back_equal_from_dict_json_file_and_messages(config):
    generator = ModelConfigGenerator(config)
    written = generator.get_config()
    told = as_servers_tell(config)
    assert ModelConfigParser.from_dict(written) == told
    assert ModelConfigParser.from_dict(json.loads(json.dumps(written))) == told
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.pbtxt"
        message = generator.to_file(path)
        assert text_format.Parse(path.read_text(encoding="utf-8"), type(message)()) == message
        assert ModelConfigParser.from_file(config_path=path) == config
    for snake in (True, False):
        as_json = json.loads(json_format.MessageToJson(message, preserving_proto_field_name=snake))
        assert ModelConfigParser.from_dict(as_json) == told
        defaults_too = json_format.MessageToDict(
            message, preserving_proto_field_name=snake, always_print_fields_with_no_presence=True
        )
        assert ModelConfigParser.from_dict(defaults_too) == told


EXAMPLES = {
    "model_name": "other",
    "max_batch_size": 7,
    "batching": False,
    "batcher": DynamicBatcher(preserve_ordering=True),
    "instance_group": {DeviceKind.KIND_GPU: 3},
    "decoupled": True,
    "backend_parameters": {"a": "b"},
    "inputs": [TensorSpec("x", (2, 2, 3), np.float32, optional=True, format="NHWC")],
    "outputs": [
        TensorSpec("y", (), np.bytes_),
        TensorSpec("z", (2,), np.float32, label_filename="z", labels=["a", ""]),
    ],
    "response_cache": ResponseCache(True),
    "model_warmup": [ModelWarmup("w", 2, {"x": WarmupInput(np.float32, (2,), random_data=True)}, 3)],
    "version_policy": SpecificVersions([3, 1]),
    "steps": STEPS,
    "instance_groups": [InstanceGroup(2, host_policy="p", rate_limiter=RateLimiter([RateLimiterResource("r", 1)]))],
}


OF_OWN_BATCHER = {"batch_cost", "max_batch_cost"}  # test_own_batcher.py has their examples


def test_every_field_but_the_version_has_an_example():
    assert EXAMPLES.keys() | OF_OWN_BATCHER | {"model_version"} == {field.name for field in fields(TritonModelConfig)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_field_alone_comes_back_and_makes_a_difference(name, tmp_path):
    config = TritonModelConfig(**{"model_name": "m", name: EXAMPLES[name]})
    generator = ModelConfigGenerator(config)
    generator.to_file(tmp_path / "config.pbtxt")
    assert ModelConfigParser.from_dict(generator.get_config()) == as_servers_tell(config)
    assert ModelConfigParser.from_file(config_path=tmp_path / "config.pbtxt") == config
    assert config != TritonModelConfig("m")


def test_the_version_is_no_part_of_the_servers_configuration():
    written = ModelConfigGenerator(TritonModelConfig("m", model_version=3)).get_config()
    assert ModelConfigParser.from_dict(written) == TritonModelConfig("m")


def test_labels_that_are_not_beside_the_file_are_unknown(tmp_path):
    scores = TensorSpec("scores", (2,), np.float32, label_filename="labels_1.txt", labels=("cat", "dog"))
    config = TritonModelConfig("m", outputs=[scores])
    ModelConfigGenerator(config).to_file(tmp_path / "m" / "config.pbtxt")
    assert (tmp_path / "m" / "labels_1.txt").read_text() == "cat\ndog\n"
    assert ModelConfigParser.from_file(config_path=tmp_path / "m" / "config.pbtxt") == config
    (tmp_path / "m" / "labels_1.txt").unlink()
    assert ModelConfigParser.from_file(config_path=tmp_path / "m" / "config.pbtxt") == as_servers_tell(config)
