"""ONNX files, by onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.onnx import external_files, inputs_of_unknown_rank
from pytriton.files.probe import damaged
from pytriton.saved.contents import Arrays, Contents, LoadOptions, tensor_schema

__all__ = ["read"]

DTYPES = {"tensor(string)": "BYTES", "tensor(double)": "FP64", "tensor(float)": "FP32", "tensor(float16)": "FP16"}
DTYPES |= {f"tensor({name})": name.upper() for name in ("bool", "int8", "int16", "int32", "int64")}
DTYPES |= {f"tensor({name})": name.upper() for name in ("uint8", "uint16", "uint32", "uint64")}
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
FATAL = 4  # what it logs below that, it also raises
BATCH = re.compile(r"batch|bs\b|^N$", re.IGNORECASE)


class _Axes(NamedTuple):
    """An input or output as the file declares it; an axis is a size, a name, or None for any size."""

    name: str
    kind: str
    sizes: Sequence[Any]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join('?' if size is None else str(size) for size in self.sizes)})"

    def shape(self, batching: bool) -> tuple[int, ...]:
        """Without batch axis; -1 is any size."""
        return tuple(size if isinstance(size, int) and size > 0 else -1 for size in self.sizes[batching:])


def read(path: Path, options: LoadOptions) -> Contents:
    """Open a session.

    Raises:
        PyTritonValidationError: The file is damaged, has data elsewhere, or inputs that are not tensors; or its batch
            axis is not known.
    """
    if options.method is not None:
        raise PyTritonValidationError(f"{path} is an ONNX file, which has no methods; leave method (--method) out")
    external_files(path)
    session = _session(path, options.threads)
    inputs = [_Axes(each.name, each.type, each.shape) for each in session.get_inputs()]
    unknown = inputs_of_unknown_rank(path)
    if untold := sorted(unknown - options.inputs.keys()):
        raise PyTritonValidationError(
            f"{path} does not say which shape its input {untold[0]!r} has; tell it without the batch axis with "
            f"inputs={{{untold[0]!r}: 'dtype:shape'}} (--input {untold[0]}:dtype:shape)"
        )
    first = [] if options.batch is False else [None]
    told = {name: [*first, *options.inputs[name].get("shape", ())] for name in unknown}
    inputs = [each._replace(sizes=told.get(each.name, each.sizes)) for each in inputs]
    outputs = [_Axes(each.name, each.type, each.shape) for each in session.get_outputs()]
    for each in inputs:
        if each.kind not in DTYPES:
            raise PyTritonValidationError(f"{path}: input {each.name!r} is a {each.kind}, which the server cannot send")
    for each in outputs:
        if each.kind.startswith("seq(tensor"):
            raise PyTritonValidationError(f"{path}: output {each.name!r} is a sequence, which the server cannot send")
    batching = _has_batch_axis(path, inputs) if options.batch is None else options.batch
    ranks = {each.name: len(each.sizes) for each in inputs}
    names = [each.name for each in outputs]

    def predict(arrays: Arrays) -> dict[str, Any]:
        fed = {name: _fed(array, ranks[name], batching) for name, array in arrays.items()}
        return dict(zip(names, session.run(names, fed), strict=True))

    axis = "the first axis is the batch's" if batching else "no batch axis: one request per call"
    notes = [axis, *(f"input {each}" for each in inputs), *(f"output {each}" for each in outputs)]
    notes.append(f"runs on {session.get_providers()[0]}")
    return Contents(
        "ONNX",
        {each.name: tensor_schema(DTYPES[each.kind], each.shape(batching)) for each in inputs},
        predict,
        {each.name: each.shape(batching) for each in outputs if each.kind in DTYPES and each.sizes},
        batching=batching,
        notes=notes,
    )


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    # Threads that spin between two calls would take the cores from the server.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    available = onnxruntime.get_available_providers()
    try:
        return onnxruntime.InferenceSession(path, options, [each for each in PROVIDERS if each in available])
    except Exception as error:  # its errors have no class of their own
        raise damaged(path, "ONNX", error) from error


def _has_batch_axis(path: Path, inputs: Sequence[_Axes]) -> bool:
    """Whether the first axis of all inputs is that of the batch; PyTritonValidationError if that is not known."""
    firsts = [each.sizes[0] if each.sizes else 0 for each in inputs]
    if all(isinstance(first, int) for first in firsts):
        return False
    names = {first for first in firsts if isinstance(first, str)}
    later = {size for each in inputs for size in each.sizes[1:] if isinstance(size, str)}
    elsewhere = any(map(BATCH.search, later)) and not any(map(BATCH.search, names))
    if len(names) > 1 or elsewhere or any(isinstance(first, int) for first in firsts):
        raise PyTritonValidationError(
            f"{path}: which axis is that of the batch? Its inputs are {', '.join(map(str, inputs))}. If it is the "
            "first one of all, load it with batch=True (--batch); else with batch=False (--no-batch), one request "
            "per call"
        )
    return True


def _fed(array: NDArray[Any], rank: int, batching: bool) -> NDArray[Any]:
    """An input as the session takes it: texts as ``str``, and one value per row in the rank that the file has."""
    if array.dtype == object:
        texts = np.empty(array.shape, object)
        texts.reshape(-1)[:] = [text.decode() for text in array.reshape(-1).tolist()]
        array = texts
    if array.ndim != rank:
        return array.reshape(array.shape[0] if batching else array.shape[:0])
    return array
