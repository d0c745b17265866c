"""The commands and URLs that the log gives for a model answer as they stand there."""

import json
import re
import shutil
import subprocess
from urllib.request import urlopen

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.model_config import DirectStrategy, ModelConfig, SequenceBatcher, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.processes import DEADLINE_S

pytestmark = [pytest.mark.either_proxy, pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")]


def echo(requests):
    return [{"y": request["x"]} for request in requests]


def stream(requests):
    for _ in range(2):
        yield from [echo(requests)]


def announced(triton, caplog, function=echo, shape=(-1,), dtype=np.float32, **options):
    """Bind a model, and return what is logged of it."""
    announced.models += 1
    tensors = [[Tensor(name=name, shape=shape, dtype=dtype)] for name in ("x", "y")]
    caplog.clear()
    with caplog.at_level("INFO", "pytriton.triton"):
        triton.bind(f"model-{announced.models}", function, *tensors, config=ModelConfig(**options))
    (text,) = [text for text in caplog.messages if "available as model" in text]
    return text


announced.models = 0


def pasted(text, **environment):
    """What the command prints, in bytes."""
    done = subprocess.run(
        ["bash", "-c", re.search(r"Try it: +(.*)", text)[1]],
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*", **environment},
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0
    return done.stdout


def test_the_urls_answer(triton, caplog):
    ready, config = re.findall(r"`GET +(\S+)`", announced(triton, caplog))
    with urlopen(ready) as answer:
        assert answer.status == 200
    with urlopen(config) as answer:
        assert json.load(answer)["name"] == f"model-{announced.models}"


@pytest.mark.parametrize(
    ("tensor", "options", "output"),
    [
        (((-1,), np.float32), {}, {"datatype": "FP32", "shape": [1, 1], "data": [0.0]}),
        (((2, -1), np.int64), {"batching": False}, {"datatype": "INT64", "shape": [2, 1], "data": [0, 0]}),
        (((1,), bytes), {}, {"datatype": "BYTES", "shape": [1, 1], "data": ["text"]}),
        (((), np.bool_), {}, {"datatype": "BOOL", "shape": [1, 1], "data": [False]}),
        (((9, 9), np.uint8), {}, {"datatype": "UINT8", "shape": [1, 9, 9], "data": [0] * 81}),
        (((65,), bytes), {}, {"datatype": "BYTES", "shape": [1, 65], "data": [""] * 65}),
        (((1,), np.float32), {"batcher": "sequence"}, {"datatype": "FP32", "shape": [1, 1], "data": [0.0]}),
    ],
)
def test_the_command_answers(triton, caplog, tensor, options, output):
    if options.get("batcher") == "sequence":
        options = {"batcher": SequenceBatcher(strategy=DirectStrategy())}
    answer = json.loads(pasted(announced(triton, caplog, echo, *tensor, **options)))
    assert answer["outputs"] == [{"name": "y", **output}]


def test_the_command_of_a_model_of_half_floats_answers(triton, caplog):
    answer = pasted(announced(triton, caplog, echo, (2,), np.float16))
    head, data = answer[:-4], answer[-4:]
    assert json.loads(head)["outputs"][0]["shape"] == [1, 2]
    assert data == bytes(4)


@pytest.mark.parametrize(
    ("tensor", "options", "value"),
    [
        (((2, 3), np.float32), {"batching": False}, [0.0] * 6),
        (((2, 3), np.float32), {}, [0.0] * 6),
        (((-1,), bytes), {}, "text"),
    ],
)
def test_the_command_of_a_decoupled_model_answers(triton, caplog, tensor, options, value):
    text = pasted(announced(triton, caplog, stream, *tensor, decoupled=True, **options)).decode()
    answers = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    assert [answer["y"] for answer in answers] == [value] * 2


def test_the_command_takes_the_access_token_from_the_environment(free_config, caplog):
    security = TritonSecurityConfig("secret", ["inference"])
    with Triton(config=free_config, security_config=security) as triton:
        text = announced(triton, caplog, batch(lambda x: {"y": x}))
        assert "secret" not in text
        assert json.loads(pasted(text, PYTRITON_ACCESS_TOKEN="secret"))["outputs"][0]["data"] == [0.0]
        assert "restricted" in pasted(text).decode()
