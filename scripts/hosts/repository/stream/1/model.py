"""The benchmark's stream as a plain decoupled model of Triton's Python backend: it runs in the server's stub."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the model."""

    def execute(self, requests):
        """Send each request as many responses as it asks for, and then the flag that ends them."""
        get, tensor, response = pb_utils.get_input_tensor_by_name, pb_utils.Tensor, pb_utils.InferenceResponse
        for request in requests:
            values, sender = get(request, "INPUT").as_numpy(), request.get_response_sender()
            for _ in range(get(request, "COUNT").as_numpy()[0, 0]):
                sender.send(response([tensor("OUTPUT", 2 * values)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
