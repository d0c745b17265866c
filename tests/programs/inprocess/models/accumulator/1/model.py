import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()
            corrid = pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy().ravel()[0]
            if start.any():
                self.sums[corrid] = np.zeros_like(value)
            self.sums[corrid] = self.sums[corrid] + value
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", self.sums[corrid])]))
        return responses
