"""A file of ONNX as a plain model of Triton's Python backend: onnxruntime, one call for a batch."""

import numpy as np
import triton_python_backend_utils as pb_utils
from saved import session


class TritonPythonModel:
    """One instance of the model; ``BENCH_SAVED`` names its file."""

    def initialize(self, args):
        """Load the file."""
        self._session = session()

    def execute(self, requests):
        """Answer a batch with one call."""
        rows = [pb_utils.get_input_tensor_by_name(request, "features").as_numpy() for request in requests]
        (labels,) = self._session.run(None, {"features": np.concatenate(rows)})
        ends = np.cumsum([len(each) for each in rows])[:-1]
        found = (pb_utils.Tensor("label", part[:, None]) for part in np.split(labels, ends))
        return [pb_utils.InferenceResponse([each]) for each in found]
