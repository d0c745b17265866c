"""The graph of a pipeline, in Mermaid's language."""

from __future__ import annotations

import re

import numpy as np

from pytriton import Pipeline, Step
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig

NODE = r'\w+(?:\["[^"\[\]|]+"\]|\(\["[^"\[\]|]+"\]\))?'
LINE = re.compile(rf'  {NODE}(?: -->(?:\|"[^"\[\]|]+"\|)? {NODE})?')


def graph_of(pipeline):
    def bound(name):
        tensors = [[TensorSpec(name=side, dtype=np.float32, shape=(1,))] for side in ("x", "y.z")]
        return TritonModelConfig(model_name=name, inputs=tensors[0], outputs=tensors[1])

    pipeline.look_up(bound)
    return pipeline.mermaid().splitlines()


def test_names_of_any_characters_make_a_valid_graph():
    odd = 'a "b" [c] (d) |e| {f} #g; é 模型 -->\n`h`'
    _, *lines = graph_of(Pipeline(Step(odd, {"x": "end"}, {"y.z": odd}), "end", outputs=[odd, "y.z"]))
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert len({*lines}) == len(lines) == 7
    assert "é 模型" in lines[1]


def test_values_keep_their_names():
    assert graph_of(Pipeline("v1.2", "count"))[1:] == [
        '  in_0(["x"])',
        '  step_0["v1.2"]',
        '  step_1["count"]',
        '  in_0 -->|"x"| step_0',
        '  step_0 -->|"y.z"| step_1',
        '  step_1 --> out_0(["y.z"])',
    ]
