import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            seen = {
                "id": request.request_id(),
                "correlation_id": request.correlation_id(),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "wanted": sorted(request.requested_output_names()),
                "parameters": json.loads(request.parameters()),
            }
            text = np.array([json.dumps(seen)], dtype=np.object_)
            numbers = pb_utils.get_input_tensor_by_name(request, "NUMBERS")
            total = np.zeros(1, dtype=np.float64) if numbers is None else numbers.as_numpy().sum(keepdims=True)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", text), pb_utils.Tensor("SUM", total)]))
        return out
