"""The benchmark's stream as a plain decoupled model of Triton's Python backend: it runs in the server's stub."""

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
        """Send each request as many responses as it asks for, and then the flag that ends them."""
        get, tensor, response = pb_utils.get_input_tensor_by_name, self._tensor, pb_utils.InferenceResponse
        for request in requests:
            values, sender = get(request, "INPUT").as_numpy(), request.get_response_sender()
            for _ in range(get(request, "COUNT").as_numpy()[0, 0]):
                sender.send(response([tensor("OUTPUT", 2 * values)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
