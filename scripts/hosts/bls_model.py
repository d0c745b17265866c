"""A model of Triton's Python backend that calls others by its BLS, those of a batch at once; without any, it echoes."""

import asyncio
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, args):
        """Read whom to call."""
        self._calls = json.loads(args["model_config"])["parameters"]["calls"]["string_value"].split()

    async def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "x")
        for name in self._calls:
            called = pb_utils.InferenceRequest(model_name=name, requested_output_names=["x"], inputs=[tensor])
            response = await called.async_exec()
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            tensor = pb_utils.get_output_tensor_by_name(response, "x")
        return pb_utils.InferenceResponse([tensor])

    async def execute(self, requests):
        """Answer a batch."""
        return await asyncio.gather(*(self._answer(request) for request in requests))
