"""What the log says of a model that is served; that its commands answer is tested on a real server."""

import json
import shlex

import numpy as np
import pytest

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.server.announcement import announcement, example_command

URL = "http://127.0.0.1:8000"


def model(*inputs, **changes):
    return TritonModelConfig(**{"model_name": "m", "inputs": list(inputs), "outputs": [SMALL], **changes})


SMALL = TensorSpec("x", (-1,), np.float32)


def test_a_model_is_announced_with_urls_without_a_slash_at_the_end():
    lines = announcement(URL, model(SMALL), None).splitlines()
    assert lines[:4] == [
        "Infer function available as model: `/v2/models/m`",
        f"  Status:         `GET  {URL}/v2/models/m/ready`",
        f"  Model config:   `GET  {URL}/v2/models/m/config`",
        f"  Inference:      `POST {URL}/v2/models/m/infer`",
    ]
    assert lines[4].startswith(f"  Try it:         curl {URL}/v2/models/m/infer -d '{{")


def test_without_http_only_the_address_is_announced():
    assert announcement("grpc://127.0.0.1:8001", model(SMALL), None).splitlines()[1:] == [
        "  Inference:      `grpc://127.0.0.1:8001`, by gRPC alone"
    ]


def body(command):
    words = shlex.split(command)
    return json.loads(words[words.index("-d") + 1])


def test_a_command_has_the_smallest_shapes_and_leaves_out_what_is_optional():
    config = model(
        TensorSpec("a", (-1, 2), np.int64),
        TensorSpec("b", (), np.bytes_),
        TensorSpec("c", (1,), np.bool_),
        TensorSpec("d", (1,), np.float32, optional=True),
    )
    assert body(example_command(URL, config, None))["inputs"] == [
        {"name": "a", "datatype": "INT64", "shape": [1, 1, 2], "data": [0, 0]},
        {"name": "b", "datatype": "BYTES", "shape": [1, 1], "data": ["text"]},
        {"name": "c", "datatype": "BOOL", "shape": [1, 1], "data": [False]},
    ]


def test_a_model_whose_inputs_are_all_optional_gets_them_all():
    config = model(TensorSpec("a", (1,), np.float32, optional=True), batching=False)
    assert [each["shape"] for each in body(example_command(URL, config, None))["inputs"]] == [[1]]


def test_the_token_is_in_no_command():
    command = example_command(URL, model(SMALL), "triton-access-token")
    assert ' -H "triton-access-token: $PYTRITON_ACCESS_TOKEN" ' in command


@pytest.mark.parametrize("dims", [(3, 224, 224), (65,)])
def test_large_inputs_do_not_fill_the_log(dims):
    command = example_command(URL, model(TensorSpec("x", dims, np.float32), SMALL), None)
    assert len(command) < 500
    assert f"head -c {4 * (np.prod(dims) + 1)} /dev/zero" in command


def test_a_stream_that_would_need_binary_data_has_no_command():
    assert example_command(URL, model(TensorSpec("x", (1000,), np.float32), decoupled=True), None) is None
    assert "Try it" not in announcement(URL, model(TensorSpec("x", (2,), np.float16), decoupled=True), None)
