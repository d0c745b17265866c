"""The benchmark's function as a model of Triton's Python backend, without pytriton: it runs inside the server's stub."""

import os
import sys

import triton_python_backend_utils as pb_utils

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from abi import adapt  # pytriton/proxy/abi.py: nothing under NumPy 1; under NumPy 2 no model works without it


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        self._tensor = adapt(pb_utils)

    def execute(self, requests):
        get, tensor, response = pb_utils.get_input_tensor_by_name, self._tensor, pb_utils.InferenceResponse
        return [response([tensor("OUTPUT", 2 * get(request, "INPUT").as_numpy())]) for request in requests]
