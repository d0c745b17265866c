"""The benchmark's echo of byte strings as a plain model of Triton's Python backend: it runs in the server's stub."""

import os
import sys

import triton_python_backend_utils as pb_utils

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from abi import adapt  # pytriton/proxy/abi.py: nothing under NumPy 1; under NumPy 2 no model works without it


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        """Called by the stub when the model is loaded."""
        self._tensor = adapt(pb_utils)

    def execute(self, requests):
        """Answer a batch."""
        get, tensor, response = pb_utils.get_input_tensor_by_name, self._tensor, pb_utils.InferenceResponse
        return [response([tensor("OUTPUT", get(request, "INPUT").as_numpy())]) for request in requests]
