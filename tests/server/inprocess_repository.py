"""A repository of plain models of Triton's Python backend, for servers within the test's process."""

from __future__ import annotations

from pathlib import Path

HEAD = """
import time
import triton_python_backend_utils as pb_utils
get = pb_utils.get_input_tensor_by_name


class TritonPythonModel:
    def execute(self, requests):
"""
ECHO = f"""{HEAD}
        responses = []
        for request in requests:
            tensors = [pb_utils.Tensor(each.name().replace("in", "out"), each.as_numpy()) for each in request.inputs()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
"""
DTYPES = ["BOOL", "INT8", "INT64", "UINT16", "FP16", "FP32", "FP64", "STRING"]


def write_model(repository: Path, name: str, source: str, configuration: str) -> None:
    """Add a model with one version to a repository."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(source)
    (version.parent / "config.pbtxt").write_text(f'backend: "python"\n{configuration}')


def write_echo(repository: Path, name: str = "echo") -> None:
    """A model that gives back what it gets, as ``out_<dtype>`` for each ``in_<dtype>``."""
    write_model(
        repository,
        name,
        ECHO,
        "\n".join(
            f'input {{ name: "in_{dtype}" data_type: TYPE_{dtype} dims: [-1] optional: true }}\n'
            f'output {{ name: "out_{dtype}" data_type: TYPE_{dtype} dims: [-1] }}'
            for dtype in DTYPES
        )
        + "\nmax_batch_size: 8",
    )
