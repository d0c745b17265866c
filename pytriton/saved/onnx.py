"""ONNX files, by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.onnx import external_files, inputs_of_unknown_rank
from pytriton.saved.contents import AXIS_NOTES, Arrays, Axes, Contents, LoadOptions, has_batch_axis
from pytriton.signature.schema import tensor_schema
from pytriton.signature.values import decoded_texts

__all__ = ["read"]

DTYPES = {"tensor(string)": "BYTES", "tensor(double)": "FP64", "tensor(float)": "FP32", "tensor(float16)": "FP16"}
DTYPES |= {f"tensor({name})": name.upper() for name in ("bool", "int8", "int16", "int32", "int64")}
DTYPES |= {f"tensor({name})": name.upper() for name in ("uint8", "uint16", "uint32", "uint64")}
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")


def read(path: Path, options: LoadOptions) -> Contents:
    """Open a session.

    Raises:
        PyTritonValidationError: The file is damaged, has data elsewhere, or inputs that are not tensors; or its batch
            axis is not known.
    """
    external_files(path)
    session = _session(path, options.threads)
    for each in session.get_inputs():
        if each.type not in DTYPES:
            raise PyTritonValidationError(f"{path}: input {each.name!r} is a {each.type}, which the server cannot send")
    for each in session.get_outputs():
        if each.type.startswith("seq(tensor"):
            raise PyTritonValidationError(f"{path}: output {each.name!r} is a sequence, which the server cannot send")
    inputs = [Axes(each.name, DTYPES[each.type], each.shape) for each in session.get_inputs()]
    outputs = [Axes(each.name, DTYPES.get(each.type, ""), each.shape) for each in session.get_outputs()]
    told = {name: Axes.told(path, name, options) for name in sorted(inputs_of_unknown_rank(path))}
    inputs = [told.get(each.name, each) for each in inputs]
    batching = has_batch_axis(path, inputs) if options.batch is None else options.batch

    def predict(arrays: Arrays) -> dict[str, Any]:
        fed = {each.name: decoded_texts(each.fitted(arrays[each.name], batching), each.name) for each in inputs}
        return dict(zip((each.name for each in outputs), session.run(None, fed), strict=True))

    notes = [*(f"input {each}" for each in inputs), *(f"output {each}" for each in outputs)]
    return Contents(
        "ONNX",
        {each.name: tensor_schema(each.dtype, each.shape(batching)) for each in inputs},
        predict,
        {each.name: each.shape(batching) for each in outputs if each.dtype and each.sizes},
        batching=batching,
        notes=[AXIS_NOTES[batching], *notes, f"runs on {session.get_providers()[0]}"],
        refusals=(ValueError, Fail, InvalidArgument),
    )


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal: what it logs below that, it also raises
    # Threads that spin between two calls would take the cores from the server.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    available = onnxruntime.get_available_providers()
    return onnxruntime.InferenceSession(path, options, [each for each in PROVIDERS if each in available])
