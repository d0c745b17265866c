"""A scripted server for conversations, and the session of a client that knows its model."""

from __future__ import annotations

import numpy as np

from pytriton.client.arguments import DEFAULT_OPTIONS, InferRequest
from pytriton.client.conversations import Deadline
from pytriton.client.session import ModelSession
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [2]}],
}


class Script:
    """A server that gives the scripted answers, one after the other or by method; sleeping only moves its clock.

    An answer may be an error, which is raised, or a function of the call.
    """

    def __init__(self, *answers, **by_method):
        self.answers, self.by_method = list(answers), by_method
        self.calls, self.naps, self.now = [], [], 1000.0

    def call(self, call):
        self.calls.append(call)
        answer = self.by_method[call.method] if self.by_method else self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer(call) if callable(answer) else answer

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds

    def close(self):
        pass

    def deadline(self, timeout_s):
        return Deadline(timeout_s, lambda: self.now)

    @property
    def methods(self):
        return [call.method for call in self.calls]


class Result:
    def __init__(self, **outputs):
        self.outputs = outputs

    def as_numpy(self, name):
        return self.outputs.get(name) if self.outputs else np.full((1, 2), 7, np.float32)


def echo(call):
    """The answer of a model that returns its inputs."""
    return Result(**{tensor.name: tensor.array for tensor in call.arguments["inputs"]})


def session(model_config=None, model_ready=False, **timeouts):
    options = {"init_timeout_s": None, "inference_timeout_s": None, **timeouts}
    return ModelSession("m", None, model_config=model_config, model_ready=model_ready, **options)


def config(**changes):
    spec = [TensorSpec("x", (2,), np.float32)]
    return TritonModelConfig(**{"model_name": "m", "inputs": spec, "outputs": spec, **changes})


def infer(session, *inputs, sample=True, parameters=None, headers=None, options=DEFAULT_OPTIONS, **named):
    return session.infer(InferRequest(inputs, named, parameters, headers, sample, options))
