"""Stands in for ``triton_python_backend_utils``, the module that the server's Python backend gives its models."""

from __future__ import annotations

import json
import sys
from types import ModuleType

NAME = "triton_python_backend_utils"


class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    INTERNAL, UNAVAILABLE = "internal", "unavailable"

    def __init__(self, message, code):
        self.message, self.code = message, code


class InferenceRequest:
    """A request with these inputs; ``outputs`` are the names of those that the client wants."""

    def __init__(self, inputs, outputs=("y", "z"), **parameters):
        self._inputs = [Tensor(name, array) for name, array in inputs.items()]
        self._outputs = list(outputs)
        self._parameters = json.dumps(parameters)

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        return self._outputs

    def parameters(self):
        return self._parameters


class InferenceResponse:
    """What a model answers; ``outputs`` is a dict of copies, as the server copies them when ``execute`` returns."""

    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name(): tensor.as_numpy().copy() for tensor in output_tensors}
        self.error = error


def install(patch):
    """Let the module be imported while the patch, a ``pytest.MonkeyPatch``, lasts."""
    module = ModuleType(NAME)
    for kind in (Tensor, TritonError, InferenceRequest, InferenceResponse):
        setattr(module, kind.__name__, kind)
    patch.setitem(sys.modules, NAME, module)
