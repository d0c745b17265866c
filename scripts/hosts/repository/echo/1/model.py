"""The benchmark's echo of byte strings as a plain model of Triton's Python backend: it runs in the server's stub."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the model."""

    def execute(self, requests):
        """Answer a batch."""
        get, tensor, response = pb_utils.get_input_tensor_by_name, pb_utils.Tensor, pb_utils.InferenceResponse
        return [response([tensor("OUTPUT", get(request, "INPUT").as_numpy())]) for request in requests]
