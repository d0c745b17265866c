"""A file of ONNX as a plain model of Triton's Python backend: onnxruntime, one call for a batch."""

from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the model, whose file lies beside this one."""

    def initialize(self, args):
        """Load the file, for a thread."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"), options)

    def execute(self, requests):
        """Answer a batch with one call."""
        rows = [pb_utils.get_input_tensor_by_name(request, "features").as_numpy() for request in requests]
        (labels,) = self._session.run(None, {"features": np.concatenate(rows)})
        ends = np.cumsum([len(each) for each in rows])[:-1]
        found = (pb_utils.Tensor("label", part[:, None]) for part in np.split(labels, ends))
        return [pb_utils.InferenceResponse([each]) for each in found]
