"""The benchmark's functions as a plain model of Triton's Python backend, which runs in the server's stub."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, args):
        """Read the names of the inputs."""
        config = json.loads(args["model_config"])
        self._inputs = [each["name"] for each in config["input"] if each["name"] != "COUNT"]
        self._factor = 1 if config["input"][0]["data_type"] == "TYPE_STRING" else 2
        self._decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)

    def execute(self, requests):
        """Answer a batch."""
        responses = None if self._decoupled else []
        for request in requests:
            outputs = []
            for name in self._inputs:
                values = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                values = values if self._factor == 1 else self._factor * values
                outputs.append(pb_utils.Tensor(name.replace("INPUT", "OUTPUT"), values))
            if not self._decoupled:
                responses.append(pb_utils.InferenceResponse(outputs))
                continue
            sender = request.get_response_sender()
            for _ in range(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0, 0]):
                sender.send(pb_utils.InferenceResponse(outputs))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return responses
