import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            end = time.time() + float(x.max())
            while time.time() < end and not request.is_cancelled():
                time.sleep(0.01)
            if request.is_cancelled():
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)))
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.full_like(x, len(requests)))]))
        return responses
